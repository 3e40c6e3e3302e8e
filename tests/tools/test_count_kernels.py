"""Kernels are counted in the text of a program."""

import pytest

from tools import count_kernels

pytestmark = pytest.mark.backend_independent
# A fusion is one kernel, whatever is inside. Nothing launches a tuple or a bitcast.
PROGRAM = """
HloModule jit_step, entry_computation_layout={(f32[2,3]{1,0})->(f32[2]{0})}

%fused_add (p.1: f32[2,3]) -> f32[2,3] {
  %p.1 = f32[2,3]{1,0} parameter(0)
  ROOT %add.1 = f32[2,3]{1,0} add(%p.1, %p.1)
}

%region (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%one (p.2: (f32[2,3])) -> (f32[2,3]) {
  %p.2 = (f32[2,3]{1,0}) parameter(0)
  %got = f32[2,3]{1,0} get-tuple-element(%p.2), index=0
  %copied = f32[2,3]{1,0} copy(%got)
  ROOT %out = (f32[2,3]{1,0}) tuple(%copied)
}

%other (p.3: (f32[2,3])) -> (f32[2,3]) {
  ROOT %p.3 = (f32[2,3]{1,0}) parameter(0)
}

ENTRY %main (x: f32[2,3]) -> (f32[2]) {
  %x = f32[2,3]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %fusion = f32[2,3]{1,0} fusion(%x), kind=kLoop, calls=%fused_add
  %which = pred[] custom-call(%fusion), custom_call_target="which"
  %all = (f32[2,3]{1,0}) tuple(%fusion)
  %taken = (f32[2,3]{1,0}) conditional(%which, %all, %all)
  %y = f32[2,3]{1,0} get-tuple-element(%taken), index=0
  %total = f32[2]{0} reduce(%y, %zero), dimensions={1}, to_apply=%region
  ROOT %last = (f32[2]{0}) tuple(%total)
}
"""


def test_kernels_of_all_branches_count_and_what_is_inside_of_one_does_not():
    # The fusion, the custom call, the copy of a branch, and the sum.
    assert count_kernels.count(PROGRAM) == (4, 1)
