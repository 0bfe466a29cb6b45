"""Shapes: one row for each kind that code tends to forget."""

Shape = tuple[int, ...]

SHAPES: dict[str, Shape] = {
    "scalar": (),
    "one": (1,),
    "vector": (5,),
    "empty": (0,),
    "empty_rows": (0, 3),
    "empty_columns": (3, 0),
    "empty_middle": (2, 0, 4),
    "ones": (1, 1, 1),
    "row": (1, 4),
    "column": (4, 1),
    "matrix": (3, 4),
    "one_between": (2, 1, 3),
    "images": (2, 3, 4, 5),
    "volumes": (2, 3, 2, 4, 3),
    "odd": (17, 31),
    "past_a_page": (65, 129),
}
EMPTY = tuple(name for name, shape in SHAPES.items() if 0 in shape)
