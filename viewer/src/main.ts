// The page's beginning: opens the recording that it carries, or waits for one to be dropped on it. Whatever is wrong with
// that is said in words.

import { App, showTitle } from './app';
import { BundleError, bundleOfFile, decodeBase64, decodeBundle } from './bundle';
import { byId } from './dom';
import { kLoaded } from './inspect';
import { Store } from './store';

function say(headline: string, text: string): void {
  byId('headline').textContent = headline;
  byId('explanation').textContent = text;
  byId('welcome').hidden = false;
  byId('workspace').hidden = true;
}

function fail(error: unknown): void {
  const known = error instanceof BundleError;
  const text = known ? error.message : `The viewer cannot show this recording: ${String(error)}`;
  say('This recording cannot be opened', text.slice(0, 500));
}

function timed<T>(stage: string, work: () => T): T {
  const began = performance.now();
  const result = work();
  kLoaded[stage] = performance.now() - began;
  return result;
}

/** What the parts of the page were before anything was opened in them: a second recording gets them anew, and with them none of
 * the first one's listeners.
 */
const kParts = ['workspace', 'tooltip', 'help', 'quality'];
const pristine = new Map(kParts.map((id) => [id, byId(id).cloneNode(true)]));
let current: AbortController | null = null;

function renew(): AbortSignal {
  if (current !== null) {
    current.abort();
    for (const id of kParts) byId(id).replaceWith(pristine.get(id)!.cloneNode(true));
  }
  current = new AbortController();
  return current.signal;
}

async function open(file: Uint8Array): Promise<void> {
  const began = performance.now();
  const bundle = await decodeBundle(file);
  kLoaded['unpack'] = performance.now() - began;
  const store = timed('store', () => new Store(bundle));
  const signal = renew();
  byId('welcome').hidden = true;
  byId('workspace').hidden = false;
  showTitle(store);
  timed('layout', () => new App(store, signal));
  kLoaded['total'] = performance.now();
}

async function contents(file: File): Promise<Uint8Array> {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new BundleError(
      'This is a folder, or a file that cannot be read. "stretto trace view FOLDER" makes a page of a folder with a recording: drop that.',
    );
  }
}

async function openFile(file: File): Promise<void> {
  say('Opening…', file.name);
  try {
    await open(bundleOfFile(await contents(file)));
  } catch (error) {
    fail(error);
    byId('back').hidden = current === null;
  }
}

function listenForFiles(): void {
  const accept = (file: File | null | undefined): void => {
    if (file === null || file === undefined) return;
    // The place in the address is the first one's.
    if (current !== null) history.replaceState(null, '', '#');
    void openFile(file);
  };
  document.addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('dragging');
  });
  document.addEventListener('dragleave', () => document.body.classList.remove('dragging'));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    accept(event.dataTransfer?.files[0]);
  });
  const chooser = byId('file') as HTMLInputElement;
  chooser.addEventListener('change', () => accept(chooser.files?.[0]));
  byId('back').addEventListener('click', () => {
    byId('welcome').hidden = true;
    byId('workspace').hidden = false;
  });
}

async function begin(): Promise<void> {
  // For loader.ts, which sees a script that was refused by nothing else.
  document.body.dataset['started'] = '';
  listenForFiles();
  const carried = byId('recording').textContent ?? '';
  byId('recording').textContent = '';
  if (carried.trim() === '') {
    say('Drop a recording here', 'A page or a .stretview file that "stretto trace view" made. It stays on this machine.');
    return;
  }
  try {
    await open(timed('decode', () => decodeBase64(carried)));
  } catch (error) {
    fail(error);
  }
}

void begin();
