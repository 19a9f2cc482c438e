// NCCL's event types and states, by number (profiler ABI v7), and how each type is drawn.

export interface EventKind {
  readonly type: number;
  readonly name: string;
  readonly words: string;
  /** Colours in the light and in the dark theme. */
  readonly light: string;
  readonly dark: string;
}

// Five families, ordered by how deep they lie; inside a family the lightness tells the members apart, so that whoever sees
// fewer hues still sees different bars. test/palette.test.ts holds them apart under simulated colour blindness.
export const kKinds: readonly EventKind[] = [
  { type: 8, name: 'GroupApi', words: 'group call of the application', light: '#067f61', dark: '#00a47e' },
  { type: 9, name: 'CollApi', words: 'collective call of the application', light: '#37a783', dark: '#42ca9f' },
  { type: 10, name: 'P2pApi', words: 'send or receive call of the application', light: '#9dd6bb', dark: '#8bf4dc' },
  { type: 11, name: 'KernelLaunch', words: 'launch of a kernel', light: '#f3bf26', dark: '#f5d547' },
  { type: 0, name: 'Group', words: 'group of operations, as enqueued', light: '#123a75', dark: '#3560a8' },
  { type: 1, name: 'Coll', words: 'collective operation', light: '#2f74c0', dark: '#4e96e4' },
  { type: 2, name: 'P2p', words: 'send or receive operation', light: '#73b3ec', dark: '#9cc6f2' },
  { type: 6, name: 'KernelCh', words: 'one channel of a kernel', light: '#e07b12', dark: '#f08f2e' },
  { type: 15, name: 'KernelPhase', words: 'phase of a kernel', light: '#f3c38c', dark: '#f8ca9e' },
  { type: 3, name: 'ProxyOp', words: 'operation of the proxy', light: '#744385', dark: '#955fa7' },
  { type: 4, name: 'ProxyStep', words: 'step of a proxy operation', light: '#bd93d8', dark: '#c6a4fc' },
  { type: 5, name: 'ProxyCtrl', words: 'proxy: asleep, awake, appending', light: '#b5304b', dark: '#d7536c' },
  { type: 7, name: 'NetPlugin', words: 'event of the network plugin', light: '#e88d96', dark: '#ee9fb9' },
  { type: 12, name: 'CeColl', words: 'collective on copy engines', light: '#0a6f86', dark: '#2b93ab' },
  { type: 13, name: 'CeSync', words: 'synchronisation of copy engines', light: '#45aec4', dark: '#78c2d4' },
  { type: 14, name: 'CeBatch', words: 'batch of copies', light: '#a3dbe6', dark: '#b2e5ef' },
  { type: 255, name: 'Unknown', words: 'event of a type that is not known', light: '#7c838c', dark: '#8d949e' },
];

// How deep each type lies in NCCL's hierarchy: group API > collective and P2P API, kernel launch > group > operation > proxy
// operation, copies > proxy step > network plugin. Types that NCCL adds later lie lowest.
const kLevelOf: Readonly<Record<number, number>> = {
  8: 0, 9: 1, 10: 1, 11: 2, 0: 3, 1: 4, 2: 4, 12: 4, 5: 5, 3: 6, 13: 6, 14: 6, 4: 7, 7: 8, 6: 9, 15: 10,
};
export const kLevels = 12;

export function levelOf(type: number): number {
  return kLevelOf[type] ?? kLevels - 1;
}

export const kColl = 1;
export const kP2p = 2;
export const kProxyOp = 3;
export const kProxyStep = 4;
export const kCollApi = 9;
export const kKernelCh = 6;
export const kGroup = 0;
export const kCeColl = 12;
export const kKernelPhase = 15;

const kByType = new Map(kKinds.map((kind) => [kind.type, kind]));

export function kindOf(type: number): EventKind {
  return kByType.get(type) ?? kByType.get(255)!;
}

const kStates: Readonly<Record<number, string>> = {
  0: 'ProxyOpSendPosted',
  1: 'ProxyOpSendRemFifoWait',
  2: 'ProxyOpSendTransmitted',
  3: 'ProxyOpSendDone',
  4: 'ProxyOpRecvPosted',
  5: 'ProxyOpRecvReceived',
  6: 'ProxyOpRecvTransmitted',
  7: 'ProxyOpRecvDone',
  8: 'ProxyStepSendGPUWait',
  9: 'ProxyStepSendWait',
  10: 'ProxyStepRecvWait',
  11: 'ProxyStepRecvFlushWait',
  12: 'ProxyStepRecvGPUWait',
  13: 'ProxyCtrlIdle',
  14: 'ProxyCtrlActive',
  15: 'ProxyCtrlSleep',
  16: 'ProxyCtrlWakeup',
  17: 'ProxyCtrlAppend',
  18: 'ProxyCtrlAppendEnd',
  19: 'ProxyOpInProgress',
  20: 'ProxyStepSendPeerWait',
  21: 'NetPluginUpdate',
  22: 'KernelChStop',
  23: 'GroupStartApiStop',
  24: 'GroupEndApiStart',
  25: 'CeCollStart',
  26: 'CeCollComplete',
  27: 'CeSyncStart',
  28: 'CeSyncComplete',
  29: 'CeBatchStart',
  30: 'CeBatchComplete',
  31: 'KernelPhaseStop',
};

export function stateName(state: number): string {
  return kStates[state] ?? `state ${state}`;
}
