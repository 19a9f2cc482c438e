// The one script that stands in the page as text: unpacks the program, which lies beside it deflated, and runs it in its own place.
// The page's policy names both by their hashes, so a program that was changed does not run.

async function unpacked(text: string): Promise<string> {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))).text();
}

function say(error: unknown): void {
  const element = (id: string): HTMLElement => document.getElementById(id)!;
  element('headline').textContent = 'This page cannot start';
  element('explanation').textContent =
    `It needs a browser of 2023 or later and to have been copied whole, and no policy of a web server may forbid its script. (${String(error)})`;
  document.querySelector<HTMLElement>('.choose')!.hidden = true;
  element('welcome').hidden = false;
}

const own = document.currentScript!;
const place = document.getElementById('program')!;
unpacked(place.textContent!).then((text) => {
  const program = document.createElement('script');
  program.textContent = text;
  place.replaceWith(program);
  own.remove();
  if (document.body.dataset['started'] === undefined) throw new Error('the script was refused');
}).catch(say);
