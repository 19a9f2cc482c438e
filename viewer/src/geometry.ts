// Where lanes and tracks lie: heights in CSS pixels from the top of all lanes. Made anew when the layout changes or a header
// is folded.

import { firstAbove } from './raster';
import type { Lane, Layout } from './layout';

export const kTrackHeight = 16;
export const kBarHeight = 13;
const kHeaderHeight = 20;
const kLanePadding = 5;
export const kLatenessHeight = 38;

function heightOf(lane: Lane): number {
  if (lane.kind === 'lateness') return kLatenessHeight;
  return lane.kind === 'thread' ? Math.max(lane.tracks, 1) * kTrackHeight + kLanePadding : kHeaderHeight;
}

export interface Geometry {
  /** By lane: its top, NaN where it is folded away; and its height. */
  readonly top: Float64Array;
  readonly height: Float64Array;
  /** By track: the top of its bars, NaN where it is folded away. */
  readonly trackTop: Float64Array;
  /** Lanes that are not folded away, from top to bottom, with their tops beside them. */
  readonly visible: number[];
  readonly visibleTops: Float64Array;
  readonly total: number;
}

export function place(layout: Layout, folded: ReadonlySet<string>): Geometry {
  const lanes = layout.lanes;
  const top = new Float64Array(lanes.length).fill(NaN);
  const height = new Float64Array(lanes.length);
  const trackTop = new Float64Array(layout.tracks.offsets.length - 1).fill(NaN);
  const hidden = new Uint8Array(lanes.length);
  const visible: number[] = [];
  let at = 0;
  lanes.forEach((lane, index) => {
    if (lane.parent >= 0 && (hidden[lane.parent] === 1 || folded.has(lanes[lane.parent].key))) {
      hidden[index] = 1;
      return;
    }
    top[index] = at;
    height[index] = heightOf(lane);
    for (let track = 0; track < lane.tracks; track++) trackTop[lane.firstTrack + track] = at + 3 + track * kTrackHeight;
    visible.push(index);
    at += height[index];
  });
  return { top, height, trackTop, visible, visibleTops: Float64Array.from(visible, (lane) => top[lane]), total: at };
}

/** Positions in `visible` of the lanes between two heights. */
export function lanesBetween(geometry: Geometry, from: number, to: number): [number, number] {
  const tops = geometry.visibleTops;
  const first = Math.max(firstAbove(tops, 0, tops.length, from) - 1, 0);
  return [first, firstAbove(tops, first, tops.length, to)];
}

/** The number of the lane at this height; -1 none. */
export function laneAt(geometry: Geometry, y: number): number {
  const [index] = lanesBetween(geometry, y, y);
  return geometry.visible[index] ?? -1;
}

/** The track at this height; -1 none. */
export function trackAt(layout: Layout, geometry: Geometry, y: number): number {
  const number = laneAt(geometry, y);
  const lane = layout.lanes[number];
  if (lane === undefined || lane.tracks === 0) return -1;
  const track = Math.floor((y - geometry.top[number] - 2) / kTrackHeight);
  return track < 0 || track >= lane.tracks ? -1 : lane.firstTrack + track;
}

/** All tracks of the lanes under a header. Lanes below one follow it in order of the tree. */
export function tracksBelow(layout: Layout, header: number): number[] {
  const found: number[] = [];
  for (let lane = header + 1; lane < layout.lanes.length && layout.lanes[lane].level > layout.lanes[header].level; lane++) {
    const { firstTrack, tracks } = layout.lanes[lane];
    for (let track = firstTrack; track < firstTrack + tracks; track++) found.push(track);
  }
  return found;
}
