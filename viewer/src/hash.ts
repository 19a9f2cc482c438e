// The part of the address after '#': what is seen and what is selected, so that a link opens at the same place.

export interface Place {
  from?: number;
  to?: number;
  /** The selected event: the number of its process and its id. */
  event?: { process: number; id: bigint };
  /** A collective by what it is on all ranks, as a report knows it: id of the communicator, function, number. */
  operation?: { communicator: string; name: string; sequence: number };
  /** The list of the worst collectives is open. */
  worst?: boolean;
  query?: string;
  marks?: number[];
  hidden?: number[];
  ranks?: string;
  communicators?: number[];
}

function numbers(text: string | null, most: number): number[] {
  if (text === null) return [];
  return text.split(',').slice(0, most).map(Number).filter((value) => Number.isFinite(value));
}

const kForms: Readonly<Record<string, [form: RegExp, words: string]>> = {
  v: [/^-?[\d.]+,-?[\d.]+$/, 'a window is FROM,TO in ns, and FROM comes first'],
  e: [/^\d{1,9}:[0-9a-f]{1,16}$/, 'an event is PROCESS:ID, the id in hexadecimal digits'],
  op: [/^[^,]{1,64},[^,]{1,64},\d{1,15}$/, 'an operation is COMM,FUNCTION,NUMBER'],
  worst: [/^/, ''],
  q: [/^/, ''],
  m: [/^-?[\d.]+(,-?[\d.]+)*$/, 'marks are times in ns'],
  hide: [/^\d{1,3}(,\d{1,3})*$/, 'types are their numbers'],
  ranks: [/^/, ''],
  comm: [/^\d+(,\d+)*$/, 'communicators are numbers in the order of the list'],
};

/** What of an address says nothing, in words. The rest of it counts. */
export function placeFaults(hash: string): string[] {
  const found: string[] = [];
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ''))) {
    const [form, words] = Object.hasOwn(kForms, name) ? kForms[name] : [null, ''];
    const [from, to] = value.split(',').map(Number);
    if (form === null) found.push(`there is no ${name.slice(0, 40)} (there are ${Object.keys(kForms).join(', ')})`);
    else if (!form.test(value) || (name === 'v' && !(to > from))) found.push(`${name}=${value.slice(0, 60)}: ${words}`);
  }
  return found;
}

export function parsePlace(hash: string): Place {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const place: Place = {};
  const [from, to] = numbers(parameters.get('v'), 2);
  if (from !== undefined && to !== undefined && to > from) Object.assign(place, { from, to });
  const event = /^(\d{1,9}):([0-9a-f]{1,16})$/.exec(parameters.get('e') ?? '');
  if (event !== null) place.event = { process: Number(event[1]), id: BigInt(`0x${event[2]}`) };
  const operation = /^([^,]{1,64}),([^,]{1,64}),(\d{1,15})$/.exec(parameters.get('op') ?? '');
  if (operation !== null) {
    place.operation = { communicator: operation[1], name: operation[2], sequence: Number(operation[3]) };
  }
  if (parameters.has('worst')) place.worst = true;
  const query = parameters.get('q');
  if (query !== null) place.query = query.slice(0, 1000);
  const marks = numbers(parameters.get('m'), 100);
  if (marks.length > 0) place.marks = marks;
  const hidden = numbers(parameters.get('hide'), 256);
  if (hidden.length > 0) place.hidden = hidden;
  const ranks = parameters.get('ranks');
  if (ranks !== null) place.ranks = ranks.slice(0, 1000);
  const communicators = numbers(parameters.get('comm'), 10000);
  if (communicators.length > 0) place.communicators = communicators;
  return place;
}

export function formatPlace(place: Place): string {
  const parameters = new URLSearchParams();
  if (place.from !== undefined && place.to !== undefined) parameters.set('v', `${place.from},${place.to}`);
  if (place.event !== undefined) parameters.set('e', `${place.event.process}:${place.event.id.toString(16)}`);
  if (place.operation !== undefined) {
    const { communicator, name, sequence } = place.operation;
    parameters.set('op', `${communicator},${name},${sequence}`);
  }
  if (place.worst) parameters.set('worst', '1');
  if (place.query) parameters.set('q', place.query);
  if (place.marks?.length) parameters.set('m', place.marks.join(','));
  if (place.hidden?.length) parameters.set('hide', place.hidden.join(','));
  if (place.ranks) parameters.set('ranks', place.ranks);
  if (place.communicators?.length) parameters.set('comm', place.communicators.join(','));
  const text = parameters.toString().replace(/%2C/g, ',').replace(/%3A/g, ':');
  return text === '' ? '' : `#${text}`;
}
