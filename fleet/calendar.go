package fleet

// calendar holds what devices do next, by the step. The near wheel has a list for each step of the
// current turn, far one for each turn.
//
// The lists are chains of chunks, which are read in sequence: with links from device to device,
// each entry would cost a cache miss.
type calendar struct {
	step   int64 // nanoseconds
	now    int64 // number of the current step
	near   [wheel]int32
	far    []int32
	chunks []chunk
	free   int32 // chunks without entries, linked
	page   []entry
}

const (
	wheel = 1 << wheelBits
	none  = -1
)

// chunk has some entries of a list: two cache lines.
type chunk struct {
	entries [7]entry
	n       int32
	next    int32
}

// An entry is a device with what happens next, which is read without a look at the device.
type entry struct {
	at      int64
	device  number
	request int32 // how many messages, or one of the following
}

const (
	connect  = 0                // the device asks for a connection
	wake     = 1<<batchBits - 2 // there is no request: its block advances the device
	register = 1<<batchBits - 1
)

// number is a device: the number of its block and that in the block.
type number uint32

const (
	wheelBits  = 12
	blockBits  = 10 // enough for 4,000,000 devices: blocks have more than blockSize/2
	deviceBits = 14
	batchBits  = 8
)

func (d number) block() int    { return int(d >> deviceBits) }
func (d number) device() int32 { return int32(d & (1<<deviceBits - 1)) }

// newCalendar returns a calendar for events before end.
func newCalendar(step, end int64) *calendar {
	c := &calendar{step: step, now: -1, far: make([]int32, end/step/wheel+1), free: none}
	for i := range c.near {
		c.near[i] = none
	}
	for i := range c.far {
		c.far[i] = none
	}
	return c
}

// add puts an entry in. A time before step least counts as the beginning of that step.
func (c *calendar) add(e entry, least int64) {
	e.at = max(e.at, least*c.step)
	n := e.at / c.step
	if n/wheel > c.now/wheel {
		c.push(&c.far[n/wheel], e)
		return
	}
	c.push(&c.near[n%wheel], e)
}

// push appends an entry to a list.
func (c *calendar) push(list *int32, e entry) {
	first := *list
	if first == none || c.chunks[first].n == int32(len(chunk{}.entries)) {
		fresh := c.free
		if fresh == none {
			fresh = int32(len(c.chunks))
			c.chunks = append(c.chunks, chunk{})
		} else {
			c.free = c.chunks[fresh].next
		}
		c.chunks[fresh].n, c.chunks[fresh].next = 0, first
		*list, first = fresh, fresh
	}
	k := &c.chunks[first]
	k.entries[k.n] = e
	k.n++
}

// drain removes the entries of a list and appends them to out.
func (c *calendar) drain(list *int32, out []entry) []entry {
	for i := *list; i != none; {
		k := &c.chunks[i]
		out = append(out, k.entries[:k.n]...)
		i, k.next, c.free = k.next, c.free, i
	}
	*list = none
	return out
}

// advance moves to step n, the one after the current one, and distributes what is due in the next
// turn of the wheel.
func (c *calendar) advance(n int64) {
	c.now = n
	if n%wheel != 0 {
		return
	}
	c.page = c.drain(&c.far[n/wheel], c.page[:0])
	for _, e := range c.page {
		c.push(&c.near[e.at/c.step%wheel], e)
	}
}

// take removes the entries of the current step and appends them to out.
func (c *calendar) take(out []entry) []entry { return c.drain(&c.near[c.now%wheel], out) }

// due reports whether the current step has entries.
func (c *calendar) due() bool { return c.near[c.now%wheel] != none }
