package board

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
)

// Config is what a board brings.
type Config struct {
	// Host is the hub's name, or that of the gateway that plays it; DeviceID the device's.
	Host, DeviceID string
	// Sign proves the identity: Signer, or a secure element.
	Sign func(ctx context.Context, text []byte) ([]byte, error)
	// Dial connects to the hub. It owns the radio, name look-up and TLS.
	Dial lean.Dial
	// Now is the wall clock. A board without one counts from a time that the network told; tokens
	// cannot be signed before the year 2000.
	Now func() time.Time
	// Seed makes the random part of delays differ from device to device and from start to start: noise
	// of an ADC, a hardware generator, a chip's id with a count of starts. The device's id is mixed
	// in.
	Seed uint64

	// Read appends the fields of one reading to b, such as "celsius":21.5, and must not exceed
	// SlotSize with them.
	Read func(b []byte) []byte
	// Interval is the time between readings. Default 1 minute.
	Interval time.Duration
	// Command takes a cloud-to-device message; body is valid until it returns. Four may wait for it;
	// what comes beyond, or has more than 400 bytes, is left to the hub, which brings it again on a
	// later connection. Default: none, nothing is subscribed to.
	Command func(body []byte)
	// Status is told when the state of the connection or its reason has changed, by Run. Default:
	// none.
	Status func(device.Status)

	// Slots is how many readings the ring holds while the hub is out of reach; then the oldest gives
	// way. Default 16, of SlotSize bytes each, default 128. A slot costs 200 bytes more.
	Slots, SlotSize int
	// Store keeps readings over a loss of power. Default: none.
	Store Store

	// Feed feeds the watchdog. It is called each FeedEvery (default 1 s), but not any more when the
	// hub has taken nothing for RebootAfter although readings waited: a reset is what helps a radio
	// that is stuck. Default: no watchdog; RebootAfter 0: fed for ever.
	Feed        func()
	FeedEvery   time.Duration
	RebootAfter time.Duration

	// Options of the client are changed here as the board needs it, after the defaults were filled in.
	// Default: none.
	Tune func(*device.Options)
}

// Firmware takes readings and brings them to the hub. One goroutine uses it.
type Firmware struct {
	set   Config
	creds transport.Credentials
	mqtt  *lean.Transport
	ring  ring
	pause *pause
	opts  device.Options

	number    uint32
	counts    Counts
	fed       time.Time
	progress  time.Time // when the hub took something last, or nothing waited
	lastState device.State
	lastWhy   device.Reason
}

// Counts is what became of the readings.
type Counts struct {
	Taken        uint32
	Acknowledged uint32
	Lost         uint32 // gave way to newer ones, or were refused by the hub
	StoreErrors  uint32
}

// Sizes of the MQTT buffers. CONNECT with its token has some 450 bytes.
const (
	writeBuffer = 768
	readBuffer  = 512
	window      = 8
	inbox       = 4
)

// New allocates what the firmware needs for good. The error names the field that is wrong.
func New(c Config) (*Firmware, error) {
	if c.Slots == 0 {
		c.Slots = 16
	}
	if c.SlotSize == 0 {
		c.SlotSize = 128
	}
	if c.Interval == 0 {
		c.Interval = time.Minute
	}
	if c.FeedEvery == 0 {
		c.FeedEvery = time.Second
	}
	switch {
	case c.Sign == nil:
		return nil, errors.New("board: Sign is nil; give Signer(key)")
	case c.Dial == nil:
		return nil, errors.New("board: Dial is nil; give the function that connects")
	case c.Now == nil:
		return nil, errors.New("board: Now is nil; give the board's clock")
	case c.Read == nil:
		return nil, errors.New("board: Read is nil; give the function that reads the sensor")
	case c.Slots < 2 || c.SlotSize < 32 || c.SlotSize > 512:
		return nil, errors.New("board: Slots or SlotSize out of range; give 2 slots or more of 32 to 512 bytes")
	case c.Interval < 0 || c.FeedEvery < 0 || c.RebootAfter < 0:
		return nil, errors.New("board: Interval, FeedEvery or RebootAfter is negative")
	}
	f := &Firmware{
		set: c, pause: newPause(), ring: newRing(c.Slots, c.SlotSize),
		creds: transport.Credentials{Host: c.Host, DeviceID: c.DeviceID, Sign: c.Sign, Now: c.Now},
		mqtt:  lean.New(c.Dial, &lean.Options{ReadBuffer: readBuffer, WriteBuffer: writeBuffer}),
		opts: device.Options{
			Window:      window,
			MaxMessages: c.Slots - 1, // one slot is free for the reading that makes the oldest give way
			MaxBytes:    c.Slots * c.SlotSize,
			Overflow:    device.DropOldest,
			// A reading is found by its time. An id would take 20 bytes of each message and a copy in RAM.
			NoMessageIDs: true,
			Inbox:        inbox,
			// Nobody comes to start the device again.
			TryAgainAfter:   10 * time.Minute,
			ReconnectSpread: 2 * time.Second,
		},
	}
	seed := c.Seed
	for i := range len(c.DeviceID) {
		seed = (seed ^ uint64(c.DeviceID[i])) * 1099511628211
	}
	f.opts.Rand = rand.NewPCG(c.Seed, seed).Uint64
	if c.Tune != nil {
		c.Tune(&f.opts)
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// load puts the readings of before the reset into the ring; of more than it holds, the newest.
func (f *Firmware) load() error {
	if f.set.Store == nil {
		return nil
	}
	// few: a store has no more than the ring that filled it; and Load must have ended before anything
	// is forgotten
	var lost []uint32
	last, err := f.set.Store.Load(func(number uint32, body []byte) {
		if len(body) > f.set.SlotSize {
			lost = append(lost, number)
			return
		}
		if f.ring.n == len(f.ring.slots)-1 {
			oldest := f.ring.slots[0]
			lost = append(lost, oldest.number)
			oldest.done = true
			f.ring.trim()
		}
		s := f.ring.add(number)
		s.message.Body = append(s.message.Body, body...)
	})
	if err != nil {
		return errors.New("board: Store: " + err.Error())
	}
	for _, number := range lost {
		f.lose(number)
	}
	f.number = last
	return nil
}

// Counts returns what became of the readings so far.
func (f *Firmware) Counts() Counts { return f.counts }

func (f *Firmware) client() (*device.Client, error) {
	client, err := device.New(&f.creds, f.mqtt, &f.opts)
	if err == nil && f.set.Command != nil {
		client.HandleMessages(func(_ context.Context, m *transport.Message) error {
			f.set.Command(m.Body)
			return nil
		})
	}
	return client, err
}

// Run stays connected, takes a reading each Interval and brings it to the hub, until ctx ends; then
// it flushes for 10 s at the most and closes. It looks at ctx each FeedEvery.
func (f *Firmware) Run(ctx context.Context) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	now := time.Now()
	next := now
	f.progress = now
	f.enqueue(client)
	for ctx.Err() == nil {
		if !now.Before(next) {
			f.take()
			f.enqueue(client)
			if next = next.Add(f.set.Interval); next.Before(now) {
				next = now.Add(f.set.Interval) // the board was busy: do not catch up
			}
		}
		f.feed(now)
		f.tell(client)
		f.settle(earlier(next, now.Add(f.set.FeedEvery)))
		now = time.Now()
	}
	return f.finish(client, 10*time.Second)
}

// Cycle is one waking of a board that sleeps: it takes a reading, connects, brings all that waits
// to the hub, and hangs up, in limit at the most (and the 5 s that a hanging transport may take to
// close). What the hub did not take stays in the ring, if RAM is kept during sleep, and in the
// Store. The error says why not all was taken.
func (f *Firmware) Cycle(limit time.Duration) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	if f.ring.n == 0 || f.progress.IsZero() {
		f.progress = time.Now()
	}
	f.take()
	f.enqueue(client)
	if err := client.Start(); err != nil {
		return err
	}
	return f.finish(client, limit)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Sleep lets d pass and feeds the watchdog each FeedEvery: for boards whose watchdog goes on while
// they sleep, and whose sleep does not end with a reset.
func (f *Firmware) Sleep(d time.Duration) {
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		if f.set.Feed != nil {
			f.set.Feed()
		}
		time.Sleep(min(d, f.set.FeedEvery))
	}
}

// finish flushes, feeding the watchdog as it is due, closes and takes all results.
func (f *Firmware) finish(client *device.Client, limit time.Duration) error {
	var err error
	now := time.Now()
	for end := now.Add(limit); ; {
		f.feed(now)
		start, slice := now, min(f.set.FeedEvery, end.Sub(now))
		stop := f.pause.endAfter(slice)
		err = client.Flush(f.pause)
		stop()
		if now = time.Now(); now.Sub(start) < slice/2 || !now.Before(end) { // half: timers of boards may be a little early
			break
		}
	}
	if closing := client.Close(); err == nil {
		err = closing
	}
	f.judgeAll() // each has its result now
	return err
}

// take puts a reading into the ring.
func (f *Firmware) take() {
	f.number++
	f.counts.Taken++
	if f.ring.full() {
		f.counts.Lost++ // the oldest are in flight
		return
	}
	s := f.ring.add(f.number)
	b := appendReading(s.message.Body, f.number, f.set.Read)
	if len(b) > f.set.SlotSize {
		f.ring.undo()
		f.counts.Lost++
		return
	}
	s.message.Body = b
	if f.set.Store != nil && f.set.Store.Keep(f.number, b) != nil {
		f.counts.StoreErrors++
	}
}

// enqueue hands what the client does not have yet to it, in order.
func (f *Firmware) enqueue(client *device.Client) {
	for i := range f.ring.n {
		if s := f.ring.slots[i]; !s.sent {
			s.sent = client.Enqueue(context.Background(), &s.message, &s.receipt) == nil
		}
	}
}

// lookEvery is how often results are looked for while some are awaited.
const lookEvery = 20 * time.Millisecond

// settle takes results until end.
func (f *Firmware) settle(end time.Time) {
	for {
		now := time.Now()
		f.judgeAll()
		rest := end.Sub(now)
		if f.ring.n == 0 {
			f.progress = now
		} else {
			rest = min(rest, lookEvery)
		}
		if rest <= 0 {
			return
		}
		time.Sleep(rest)
	}
}

// judgeAll takes the results that there are, in any order: those in the middle that gave way make
// room for newer ones.
func (f *Firmware) judgeAll() {
	for i := range f.ring.n {
		s := f.ring.slots[i]
		if s.sent && s.receipt.Ready() {
			f.judge(s, s.receipt.Wait(f.pause))
		}
	}
	f.ring.trim()
}

// judge takes the result of a reading.
func (f *Firmware) judge(s *slot, err error) {
	s.sent = false
	switch {
	case err == nil:
		f.counts.Acknowledged++
		f.progress = time.Now()
		f.forget(s.number)
		s.done = true
	case transport.KindOf(err) == transport.Closed: // for the next connection
	default:
		f.lose(s.number)
		s.done = true
	}
}

func (f *Firmware) lose(number uint32) {
	f.counts.Lost++
	f.forget(number)
}

func (f *Firmware) forget(number uint32) {
	if f.set.Store != nil && f.set.Store.Forget(number) != nil {
		f.counts.StoreErrors++
	}
}

// feed feeds the watchdog while things move.
func (f *Firmware) feed(now time.Time) {
	if f.set.Feed == nil || now.Sub(f.fed) < f.set.FeedEvery {
		return
	}
	f.fed = now
	if f.set.RebootAfter == 0 || now.Sub(f.progress) < f.set.RebootAfter {
		f.set.Feed()
	}
}

// tell passes a change of the connection on. Asking costs no goroutine and no queue, as OnStatus
// would.
func (f *Firmware) tell(client *device.Client) {
	if f.set.Status == nil {
		return
	}
	s := client.Status()
	if s.State != f.lastState || s.Reason != f.lastWhy {
		f.lastState, f.lastWhy = s.State, s.Reason
		f.set.Status(s)
	}
}
