package fleet

// calendar holds the devices of a block by the step of their next event, as lists through
// device.next. The near wheel has a bucket for each step, the far wheel one for each turn of the
// near wheel. Adding and taking are O(1), and nothing is allocated.
type calendar struct {
	step int64 // nanoseconds
	now  int64 // number of the current step
	near [wheel]int32
	far  [wheel]int32
}

const (
	wheel = 1 << 12
	none  = -1
)

func newCalendar(step int64) *calendar {
	c := &calendar{step: step, now: -1}
	for i := range c.near {
		c.near[i], c.far[i] = none, none
	}
	return c
}

// add puts device i in. An event before the given step goes to that step.
func (c *calendar) add(devices []device, i int32, least int64) {
	n := max(devices[i].at/c.step, least)
	bucket := &c.near[n%wheel]
	if n/wheel > c.now/wheel {
		bucket = &c.far[n/wheel%wheel]
	}
	devices[i].next = *bucket
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
		next := devices[i].next
		at := devices[i].at / c.step
		bucket := &c.near[at%wheel]
		if at/wheel != n/wheel { // a later turn of the far wheel
			bucket = page
		}
		devices[i].next = *bucket
		*bucket = i
		i = next
	}
}

// take removes the devices of the current step and appends them to list.
func (c *calendar) take(devices []device, list []int32) []int32 {
	bucket := &c.near[c.now%wheel]
	for i := *bucket; i != none; i = devices[i].next {
		list = append(list, i)
	}
	*bucket = none
	return list
}
