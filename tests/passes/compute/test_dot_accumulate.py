"""How long the vectors are that an instruction multiplies and sums."""

from nnefc.passes.compute.dot.dot_accumulate import filled_up, vector_elements


def test_vectors_are_as_long_as_those_of_the_machine() -> None:
    assert [vector_elements(count, 16) for count in (48, 24, 12, 6)] == [16, 8, 4, 1]
    assert [vector_elements(count, 16, same_sign=False) for count in (48, 12)] == [8, 4]
    assert vector_elements(64, 32) == 32
    assert [filled_up(count, 16) for count in (3, 5, 9, 17)] == [4, 8, 16, 32]
