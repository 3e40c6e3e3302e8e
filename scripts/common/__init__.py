"""What the command lines share: options, a training run, its files, the machine."""
