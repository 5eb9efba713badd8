"""Pictures: a line looks the same in every panel, and the paper's points are told from ours."""

from pathlib import Path

from matplotlib.figure import Figure

from reproduction.picture import OTHERS, Picture, Point, draw, draw_line, looks_of, percent


def test_lines_look_the_same_in_every_panel_and_ours_differ() -> None:
    looks = looks_of(["VCC", "Longformer", "VCC, more", "unknown", "VCC"])
    assert looks["Longformer"][0] == OTHERS["longformer"]
    assert len({looks[name] for name in ("VCC", "VCC, more", "unknown")}) == 3
    assert looks_of(["VCC", "VCC, more"])["VCC, more"] == looks["VCC, more"]


def test_points_of_a_line_are_joined_in_order_with_their_intervals() -> None:
    axes = Figure().subplots()
    draw_line(axes, [Point("VCC", 3, 20, 18, 23), Point("VCC", 1, 10, 9, 12)], "red", "o", 0)
    line, bars = axes.lines[0], axes.collections[0]
    assert line.get_xdata().tolist() == [1, 3] and line.get_ydata().tolist() == [10, 20]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[9, 12], [18, 23]]


def test_a_picture_has_a_panel_for_each(tmp_path: Path) -> None:
    points = (Point("VCC", 1, 50), Point("VCC", 2, 60, paper=True, label="4K base"))
    draw([Picture("a", "ms", percent("f1"), points, told="read it so"), Picture("b", "ms", "F1, %", points, True)],
         tmp_path / "two.png")  # fmt: skip
    draw([Picture("a", "ms", percent("f1"), points)], tmp_path / "one.png")
    widths = [int.from_bytes((tmp_path / f"{name}.png").read_bytes()[16:20], "big") for name in ("one", "two")]
    assert widths[1] == 2 * widths[0]
