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

let opened = false;

async function open(file: Uint8Array): Promise<void> {
  const began = performance.now();
  const bundle = await decodeBundle(file);
  kLoaded['unpack'] = performance.now() - began;
  const store = timed('store', () => new Store(bundle));
  byId('welcome').hidden = true;
  byId('workspace').hidden = false;
  showTitle(store);
  timed('layout', () => new App(store));
  kLoaded['total'] = performance.now();
  opened = true;
}

/** A second recording gets a page without the first one's listeners: this one, loaded again. */
let dropped: File | null = null;

async function openFile(file: File): Promise<void> {
  say('Opening…', file.name);
  try {
    await open(bundleOfFile(new Uint8Array(await file.arrayBuffer())));
  } catch (error) {
    fail(error);
  }
}

function listenForFiles(): void {
  const accept = (file: File | null | undefined): void => {
    if (file === null || file === undefined) return;
    if (opened) {
      say('One recording a page', 'Open this page in a new tab, and drop the other recording there.');
      byId('back').hidden = false;
      return;
    }
    dropped = file;
    void openFile(dropped);
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
