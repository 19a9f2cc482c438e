import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/setup.ts'],
    testTimeout: 60000,
    hookTimeout: 90000,
    // The million events are timed: not beside another file's browser.
    fileParallelism: false,
    reporters: ['default'],
  },
});
