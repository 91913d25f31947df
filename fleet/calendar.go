package fleet

// calendar holds the devices of a block by the step of their next event, as lists. The near wheel
// has a list for each step, the far wheel one for each turn of the near wheel. Adding and taking
// are O(1), and nothing is allocated.
type calendar struct {
	step int64 // nanoseconds
	now  int64 // number of the current step
	near [wheel]int32
	far  [wheel]int32
	next []int32 // of each device, the next one in its list; apart from the devices, to be in the cache
}

const (
	wheel = 1 << 12
	none  = -1
)

func newCalendar(step int64, devices int) *calendar {
	c := &calendar{step: step, now: -1, next: make([]int32, devices)}
	for i := range c.near {
		c.near[i], c.far[i] = none, none
	}
	return c
}

// add puts device i in, whose event is at the given time. An event before step least goes to that
// step.
func (c *calendar) add(i int32, at, least int64) {
	n := max(at/c.step, least)
	bucket := &c.near[n%wheel]
	if n/wheel > c.now/wheel {
		bucket = &c.far[n/wheel%wheel]
	}
	c.next[i] = *bucket
	*bucket = i
}

// advance moves to step n, the one after the current one, and distributes what is due in the next
// turn of the wheel.
func (c *calendar) advance(devices []device, n int64) {
	c.now = n
	if n%wheel != 0 {
		return
	}
	page := &c.far[n/wheel%wheel]
	i := *page
	*page = none
	for i != none {
		next := c.next[i]
		at := max(devices[i].at/c.step, n) // see add
		bucket := &c.near[at%wheel]
		if at/wheel != n/wheel { // a later turn of the far wheel
			bucket = page
		}
		c.next[i] = *bucket
		*bucket = i
		i = next
	}
}

// take removes the devices of the current step and appends them to list.
func (c *calendar) take(list []int32) []int32 {
	bucket := &c.near[c.now%wheel]
	for i := *bucket; i != none; i = c.next[i] {
		list = append(list, i)
	}
	*bucket = none
	return list
}
