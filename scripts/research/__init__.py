"""Research: experiments and their engine, papers, benches, studies, and speed."""
