"""A small stock ledger: movements go in, shelf counts and reorder lists come out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Item:
    """One article in the warehouse; prices are in cents."""

    sku: str
    price: int
    on_hand: int = 0
    reserved: int = 0
    reorder_at: int = 10


@dataclass
class Report:
    """What a batch of movements did."""

    moved: dict[str, int] = field(default_factory=dict)
    value: int = 0
    refused: list[str] = field(default_factory=list)
    low: list[str] = field(default_factory=list)


def apply_movements(items: dict[str, Item], movements: list[tuple[str, str, int]]) -> Report:
    """Book all movements, in order, and report what happened.

    A movement is (kind, sku, number of pieces). Kinds are `receive`, `ship`,
    `reserve`, `release` and `count`. What cannot be booked is refused, with the
    reason, and the batch goes on.
    """
    report = Report()
    for kind, sku, qty in movements:
        item = items.get(sku)
        if item is None:
            report.refused.append(f"{kind} {sku}: no such item")
            continue
        if qty < 0 or (qty == 0 and kind != "count"):
            report.refused.append(f"{kind} {sku}: cannot book {qty} pieces")
            continue

        free = item.on_hand - item.reserved
        if kind == "receive":
            item.on_hand += qty
            change = qty
        elif kind == "ship":
            if qty > free:
                report.refused.append(f"ship {sku}: {qty} wanted, {free} free")
                continue
            item.on_hand -= qty
            change = -qty
        elif kind == "reserve":
            if qty > free:
                report.refused.append(f"reserve {sku}: {qty} wanted, {free} free")
                continue
            item.reserved += qty
            change = 0
        elif kind == "release":
            item.reserved -= min(qty, item.reserved)
            change = 0
        elif kind == "count":
            change = qty - item.on_hand
            item.on_hand = qty
            item.reserved = min(item.reserved, qty)
        else:
            report.refused.append(f"{kind} {sku}: no such kind of movement")
            continue

        report.moved[sku] = report.moved.get(sku, 0) + change
        report.value += change * item.price

    report.low = sorted(sku for sku, item in items.items() if item.on_hand < item.reorder_at)
    return report


def reorder(items: dict[str, Item], weeks: int, sold_a_week: dict[str, int]) -> dict[str, int]:
    """How many pieces of each item to buy so that the stock lasts `weeks` weeks."""
    order = {}
    for sku, item in items.items():
        needed = sold_a_week.get(sku, 0) * weeks
        missing = needed - (item.on_hand - item.reserved)
        if missing > 0:
            order[sku] = missing
    return order


def describe(item):
    """One line for people."""
    price = f"{item.price // 100}.{item.price % 100:02d}"
    return f"{item.sku}: {item.on_hand} on hand, {item.reserved} reserved, {price} each"


if __name__ == "__main__":
    stock = {"bolt-m6": Item("bolt-m6", 12, 400), "nut-m6": Item("nut-m6", 8, 90, reorder_at=100)}
    result = apply_movements(stock, [("ship", "bolt-m6", 150), ("count", "nut-m6", 84)])
    print(result)
    print("\n".join(describe(item) for item in stock.values()))
    print(reorder(stock, 2, {"bolt-m6": 200}))
