"""Numbered series keys, and columns of values: joining columns by number is a hundred times as fast as by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.query import Join

Key = tuple[str, ...]


class KeyTable:
    """Numbers keys in the order in which they appear. Services, calls, pods and parts of keys share the numbers."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._parts: dict[tuple[int | None, int | None], KeyMap] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def number(self, key: Key) -> int:
        """Return the number of a key; a new key is added."""
        number = self._numbers.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
        return number

    def numbers(self, keys: Iterable[Key]) -> IntArray:
        return np.fromiter(map(self.number, keys), np.int64)

    def name(self, numbers: IntArray) -> list[Key]:
        """Return the keys with these numbers."""
        return [self._keys[number] for number in numbers.tolist()]

    def among(self, numbers: IntArray, *members: IntArray) -> NDArray[np.bool_]:
        """Return ``[R]`` whether each of the numbers is one of the others."""
        is_member: NDArray[np.bool_] = self._mask(members)[numbers]
        return is_member

    def distinct(self, *numbers: IntArray) -> IntArray:
        """Return these numbers, each once, ascending."""
        return np.flatnonzero(self._mask(numbers))

    def join(self, first: IntArray, second: IntArray) -> IntArray:
        """Return ``[R]`` the numbers of the keys that begin with one key and continue with another."""
        if (second == self.number(())).all():
            return first
        base = len(self)
        pairs, place = np.unique(first * base + second, return_inverse=True)
        ends = (divmod(pair, base) for pair in pairs.tolist())
        numbers: IntArray = self.numbers((*self._keys[begin], *self._keys[end]) for begin, end in ends)[place]
        return numbers

    def _mask(self, numbers: Iterable[IntArray]) -> NDArray[np.bool_]:
        mask = np.zeros(len(self), bool)
        for part in numbers:
            mask[part] = True
        return mask

    def part(self, begin: int | None, end: int | None = None) -> "KeyMap":
        """Return the numbers of ``key[begin:end]``."""
        if (begin, end) not in self._parts:
            self._parts[begin, end] = KeyMap(self, lambda key: key[begin:end])
        return self._parts[begin, end]


class KeyMap:
    """A function from keys to keys, by their numbers. It is called once for each key."""

    def __init__(self, keys: KeyTable, function: Callable[[Key], Key]) -> None:
        self._keys, self._function = keys, function
        self._images: IntArray = np.empty(0, np.int64)  # by number; -1: unknown

    def __call__(self, numbers: IntArray) -> IntArray:
        if len(new_numbers := self.missing(numbers)):
            self._images[new_numbers] = self._keys.numbers(map(self._function, self._keys.name(new_numbers)))
        images: IntArray = self._images[numbers]
        return images

    def missing(self, numbers: IntArray) -> IntArray:
        """Return the distinct numbers for which the function has not been called."""
        if len(self._images) < len(self._keys):
            self._images = np.append(self._images, np.full(2 * len(self._keys) - len(self._images), -1))
        return self._keys.distinct(numbers[self._images[numbers] < 0])

    @property
    def known_numbers(self) -> IntArray:
        """The numbers for which the function has been called."""
        return np.flatnonzero(self._images >= 0)


class Column(Mapping[Key, float]):
    """Values of one query by key; each key occurs once. NaN: a series without a usable value.

    Args:
        numbers: ``[R]``, ascending.
        values: ``[R]``.
    """

    def __init__(self, keys: KeyTable, numbers: IntArray, values: Numbers) -> None:
        self.table, self.numbers, self.array = keys, numbers, values

    @classmethod
    def of(cls, values: Mapping[Key, float], keys: KeyTable | None = None) -> "Column":
        table = KeyTable() if keys is None else keys
        return cls.join(table, table.numbers(values), np.array([*values.values()], np.float64))

    @classmethod
    def join(cls, keys: KeyTable, numbers: IntArray, values: Numbers, join: Join = "sum") -> "Column":
        """Join the values that have the same key. A sum with NaN is NaN; the largest value ignores NaN."""
        distinct = keys.distinct(numbers)
        if join == "sum":
            return cls(keys, distinct, np.bincount(numbers, values, len(keys))[distinct].astype(np.float64))
        largest = np.full(len(keys), np.nan)
        np.fmax.at(largest, numbers, values)
        return cls(keys, distinct, largest[distinct])

    @classmethod
    def first_of(cls, columns: Sequence["Column"]) -> "Column":
        """Unite columns with the same table. Each key has the value of the first column that has it."""
        keys = columns[0].table
        numbers, values = keys.distinct(*(column.numbers for column in columns)), np.empty(len(keys))
        for column in reversed(columns):
            values[column.numbers] = column.array
        return cls(keys, numbers, values[numbers])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_key)

    def __getitem__(self, key: Key) -> float:
        return self._by_key[key]

    def at(self, numbers: IntArray) -> Numbers:
        """Return the values of these keys; NaN for those without a row."""
        values = np.full(len(self.table), np.nan)
        values[self.numbers] = self.array
        return values[numbers]

    def only(self, mask: NDArray[np.bool_]) -> "Column":
        return Column(self.table, self.numbers[mask], self.array[mask])

    def among(self, numbers: IntArray) -> "Column":
        """Return the rows with these keys."""
        return self.only(self.table.among(self.numbers, numbers))

    def part(self, begin: int | None, end: int | None = None) -> IntArray:
        """Return ``[R]`` the number of ``key[begin:end]`` for each key."""
        return self.table.part(begin, end)(self.numbers)

    def to(self, keys: KeyTable) -> "Column":
        """Return the same column with another table's numbers."""
        return self if self.table is keys else Column.of(self, keys)

    @cached_property
    def _by_key(self) -> dict[Key, float]:
        return dict(zip(self.table.name(self.numbers), self.array.tolist(), strict=True))


Columns = Mapping[str, Column]  # by role
