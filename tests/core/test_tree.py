import pytest
import torch
from hypothesis import given

from tests.cases import Case, binary, cases, relative_error
from vcc import Rows, build_tree, flatten_tree
from vcc.core.rows import concat_rows
from vcc.core.vips import pack
from vcc.testing import Node, mean, random_rows


def means_per_scale(tree) -> list[torch.Tensor]:
    """c^s for every scale, by the recursion."""
    means = [tree.means]
    for difference, fan_out in zip(tree.differences, tree.fan_outs, strict=True):
        means.append(means[-1].repeat_interleave(fan_out, 1) - difference)
    return means


@given(cases())
def test_flatten_undoes_build(case: Case) -> None:
    flat = flatten_tree(build_tree(case.rows, case.config.scales))
    assert relative_error(flat.hidden, case.rows.hidden) < 1e-14
    assert torch.equal(flat.counts, case.rows.counts)
    assert torch.equal(flat.positions, case.rows.positions)


@given(cases(longest=20))
def test_every_node_is_the_mean_of_its_real_tokens(case: Case) -> None:
    tree = build_tree(case.rows, case.config.scales)
    for depth, (s, level) in enumerate(zip(tree.scales, means_per_scale(tree), strict=True)):
        for element in range(level.shape[0]):
            for x in range(level.shape[1]):
                node = Node(depth, s, x)
                tokens = [j for j in node.tokens if j < tree.length and case.rows.counts[element, j] > 0]
                assert tree.counts[depth][element, x] == len(tokens)
                if tokens:
                    place = case.rows.positions[element, tokens].mean()
                    torch.testing.assert_close(tree.positions[depth][element, x], place, rtol=1e-13, atol=1e-13)
                    expected = mean(case.rows, element, node)
                    torch.testing.assert_close(level[element, x], expected, rtol=1e-12, atol=1e-12)


def test_the_papers_recursion_in_a_binary_tree() -> None:
    """c_x^2s = (c_2x-1^s + c_2x^s) / 2, and what is stored below the root is delta c_x^s = c_ceil(x/2)^2s - c_x^s."""
    rows = random_rows(1, 16)
    tree = build_tree(rows, binary(16))
    assert tree.scales == (16, 8, 4, 2, 1) and tree.fan_outs == (2, 2, 2, 2)
    means = [rows.hidden]
    while means[0].shape[1] > 1:
        means.insert(0, (means[0][:, ::2] + means[0][:, 1::2]) / 2)
    torch.testing.assert_close(tree.means, means[0], rtol=1e-14, atol=1e-14)
    for difference, parents, children in zip(tree.differences, means, means[1:], strict=False):
        torch.testing.assert_close(difference, parents.repeat_interleave(2, 1) - children, rtol=1e-14, atol=1e-14)


def test_a_ragged_last_segment_is_the_mean_of_what_is_there() -> None:
    rows = random_rows(1, 5)
    tree = build_tree(rows, (4, 1))
    torch.testing.assert_close(tree.means[0, 1], rows.hidden[0, 4], rtol=1e-14, atol=1e-14)
    assert tree.counts[0].tolist() == [[4, 1]] and tree.positions[0].tolist() == [[1.5, 4]]


def test_rows_that_already_stand_for_many_tokens_weigh_as_many() -> None:
    rows = Rows(torch.tensor([[[1.0], [5.0]]]), torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 3.0]]))
    tree = build_tree(rows, (2, 1))
    assert tree.means.item() == 2.0 and tree.counts[0].item() == 4 and tree.positions[0].item() == 1.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_tree_of_a_half_precision_model_is_float32(dtype: torch.dtype) -> None:
    tree = build_tree(random_rows(1, 9, dtype=dtype), (4, 2, 1))
    tensors = (tree.means, *tree.differences, *tree.counts, *tree.positions)
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_strided_and_expanded_inputs_build_the_same_tree() -> None:
    rows = random_rows(3, 8)
    strided = Rows(rows.hidden.mT.contiguous().mT, rows.counts[:1].expand(3, 8), rows.positions[:1].expand(3, 8))
    expected, tree = build_tree(rows, (4, 2, 1)), build_tree(strided, (4, 2, 1))
    assert torch.equal(flatten_tree(tree).hidden, flatten_tree(expected).hidden)
    assert all(torch.equal(a, b) for a, b in zip(tree.differences, expected.differences, strict=True))


@pytest.mark.parametrize(
    "scales",
    [(), (16,), (16, 2), (1, 16), (6, 4, 1), (4, 4, 1), (0, 1), (-4, 1), (4.0, 1), (True,), ("4", 1), (4, 1, 1)],
)
def test_bad_scales_are_refused_with_value_and_rule(scales: tuple) -> None:
    with pytest.raises(ValueError) as error:
        build_tree(random_rows(1, 4), scales)
    assert f"scales={scales!r}" in str(error.value)
    assert "each a multiple of the next, ending in 1" in str(error.value)


def test_only_packed_single_tokens_make_a_regular_tree() -> None:
    """Two packed pieces side by side may have padding between them."""
    rows = random_rows(2, 8)
    packed, _ = pack(Rows.of_tokens(rows.hidden, rows.counts, rows.positions))
    assert build_tree(packed, (4, 1)).regular
    assert not build_tree(concat_rows(packed, packed), (4, 1)).regular and not build_tree(rows, (4, 1)).regular
