// How far the times of two events can be wrong against each other. Processes of one boot of a host read one clock. Other clocks
// are known to their errors, which add up; a clock that nothing links to the first one is known to nothing.

import type { Column } from './bundle';
import type { Store } from './store';

/** Processes with the same number read the same clock. A boot of zeros says nothing. */
function clockNumbers(store: Store): Int32Array {
  const known = new Map<unknown, number>();
  return Int32Array.from(store.bundle.processes, ({ fields }, process) => {
    const boot = fields['boot'];
    const key = typeof boot === 'string' && /[1-9a-f]/.test(boot) ? boot : process;
    if (!known.has(key)) known.set(key, known.size);
    return known.get(key)!;
  });
}

export class Clocks {
  private readonly numbers: Int32Array;
  private readonly errors: Float64Array;
  private readonly onGpu: Column | undefined;

  constructor(private readonly store: Store) {
    this.numbers = clockNumbers(store);
    this.errors = Float64Array.from(store.bundle.processes, ({ fields }) => {
      const error = fields['error_ns'];
      return typeof error === 'number' && error >= 0 ? error : Infinity;
    });
    this.onGpu = store.column('gpu_error') ?? store.column('clock_error');
  }

  /** Half-width in ns of what the starts of two events can be apart from what they seem. */
  error(a: number, b: number): number {
    const [one, other] = [this.gpuError(a), this.gpuError(b)];
    if (one >= 0 && other >= 0) return one + other;
    const [mine, theirs] = [this.store.process[a], this.store.process[b]];
    const hosts = mine >= 0 && theirs >= 0 && this.numbers[mine] === this.numbers[theirs] ? 0 : (this.errors[mine] ?? Infinity) + (this.errors[theirs] ?? Infinity);
    // One lies on a GPU's clock: that one's error against its host counts too.
    return hosts + (this.store.column('clock_error')?.get(one >= 0 ? a : b) || 0);
  }

  private gpuError(row: number): number {
    return this.onGpu?.get(row) ?? NaN;
  }
}
