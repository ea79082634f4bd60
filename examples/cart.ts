/** A shopping cart: lines, discounts, and totals in cents. */

export interface Product {
  id: string;
  title: string;
  unitPrice: number;
  taxRate: number;
}

export interface Line {
  product: Product;
  count: number;
}

export type Discount =
  | { kind: "percent"; percent: number }
  | { kind: "amount"; cents: number; minimum: number };

export interface Totals {
  net: number;
  tax: number;
  discount: number;
  gross: number;
}

export class Cart {
  private readonly lines = new Map<string, Line>();
  private discount: Discount | null = null;

  /** Puts `count` pieces of a product into the cart. */
  add(product: Product, count = 1): void {
    if (!Number.isInteger(count) || count <= 0) {
      throw new RangeError(`cannot add ${count} pieces`);
    }
    const line = this.lines.get(product.id);
    if (line) {
      line.count += count;
    } else {
      this.lines.set(product.id, { product, count });
    }
  }

  remove(productId: string): boolean {
    return this.lines.delete(productId);
  }

  apply(discount: Discount): void {
    this.discount = discount;
  }

  totals(): Totals {
    let net = 0;
    let tax = 0;
    for (const line of this.lines.values()) {
      const amt = line.product.unitPrice * line.count;
      net += amt;
      tax += Math.round(amt * line.product.taxRate);
    }
    const discount = discountOn(net, this.discount);
    const share = net === 0 ? 0 : discount / net;
    tax = Math.round(tax * (1 - share));
    return { net, tax, discount, gross: net - discount + tax };
  }

  *[Symbol.iterator](): Iterator<Line> {
    yield* this.lines.values();
  }
}

/** The cents that a discount takes off a net sum; never more than the sum. */
export function discountOn(net: number, discount: Discount | null): number {
  if (discount === null) {
    return 0;
  }
  if (discount.kind === "percent") {
    return Math.round((net * Math.min(discount.percent, 100)) / 100);
  }
  return net >= discount.minimum ? Math.min(discount.cents, net) : 0;
}

export function formatCents(cents: number): string {
  const sign = cents < 0 ? "-" : "";
  const whole = Math.floor(Math.abs(cents) / 100);
  const rest = String(Math.abs(cents) % 100).padStart(2, "0");
  return `${sign}${whole}.${rest}`;
}
