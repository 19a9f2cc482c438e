import { describe, expect, it } from 'vitest';
import { library } from '../src/quality';

describe('the library of a process', () => {
  it('is Stretto where Stretto says so, and NCCL else', () => {
    expect(library({ nccl_version: 23203, stretto: '0.1.0' })).toBe('Stretto 0.1.0');
    expect(library({ nccl_version: 22809, stretto: '' })).toBe('NCCL 2.28.9');
    expect(library({ nccl_version: 22809 })).toBe('NCCL 2.28.9');
    expect(library({ nccl_version: 0 })).toBe('');
  });
});
