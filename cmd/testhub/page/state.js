// The chosen device, and which panels have to be read again.

const listeners = [];
let chosen = "";

export const device = () => chosen;

export function choose(id) {
  if (id !== chosen) {
    chosen = id;
    listeners.forEach((f) => f(id));
  }
}

export const onChoose = (f) => listeners.push(f);

// A topic reads something again when it is due and visible, and at most once in a period, however
// many events make it due.
export class Topic {
  constructor(read, visible = () => true, period = () => 400) {
    Object.assign(this, {read, visible, period, due: true, busy: false, next: 0});
    topics.push(this);
  }

  touch() {
    this.due = true;
  }

  async run(now) {
    if (!this.due || this.busy || now < this.next || !this.visible()) {
      return;
    }
    this.busy = true;
    this.due = false;
    try {
      await this.read();
    } catch (e) {
      console.info(e.message); // the next event or the next connection reads again
    }
    this.busy = false;
    this.next = performance.now() + this.period();
  }
}

const topics = [];

setInterval(() => {
  if (!document.hidden) {
    topics.forEach((t) => t.run(performance.now()));
  }
}, 100);

// touchAll makes everything due, after a loss of events.
export const touchAll = () => topics.forEach((t) => t.touch());
