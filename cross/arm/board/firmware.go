package board

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Config has the values of a board.
type Config struct {
	// Host is the name of the hub, or of a gateway that acts as the hub; DeviceID is the device's.
	Host, DeviceID string
	// Sign proves the identity: a Signer, or a secure element.
	Sign func(ctx context.Context, text []byte) ([]byte, error)
	// Dial connects to the hub. It is responsible for the radio, name look-up and TLS.
	Dial engine.Dial
	// Wrap, unless nil, returns a transport around the firmware's own: one that finds out the hub, for
	// example.
	Wrap func(transport.Transport) transport.Transport
	// Now is the wall clock. A board without one adds its own clock to a time from the network. Tokens
	// cannot be signed before the year 2000.
	Now func() time.Time
	// Seed makes the random part of delays differ between devices and between starts: noise of an ADC,
	// a hardware generator, or a chip's id with a count of starts. The firmware mixes the device id
	// in.
	Seed uint64

	// Read appends the fields of one reading to b, such as "celsius":21.5. The reading must not exceed
	// SlotSize.
	Read func(b []byte) []byte
	// Interval is the time between readings. Default 1 minute.
	Interval time.Duration
	// Command handles a cloud-to-device message; body is valid until it returns. Up to four messages
	// may wait for it. Further ones, and those with more than 400 bytes, stay at the hub, which sends
	// them again on a later connection. Default: none, without a subscription.
	Command func(body []byte)
	// Status is called by Run when the state of the connection or its reason has changed. Default:
	// none.
	Status func(device.Status)

	// Slots is the number of readings in the ring while the hub is unreachable; a full ring drops the
	// oldest. Default 16, of SlotSize bytes each, default 128. A slot costs 200 bytes more.
	Slots, SlotSize int
	// Store keeps readings across a power loss. Default: none.
	Store Store

	// Feed feeds the watchdog. It is called each FeedEvery (default 1 s), until the hub has accepted
	// nothing for RebootAfter although readings waited: a reset helps a stuck radio. Default: no
	// watchdog; RebootAfter 0: fed for ever.
	Feed        func()
	FeedEvery   time.Duration
	RebootAfter time.Duration

	// Tune changes options of the client, after the defaults were set. Default: none.
	Tune func(*device.Options)
}

// Firmware takes readings and sends them to the hub. It is not safe for concurrent use.
type Firmware struct {
	cfg   Config
	creds transport.Credentials
	mqtt  transport.Transport
	ring  ring
	pause *pause
	opts  device.Options

	number     uint32
	counts     Counts
	fed        time.Time
	progress   time.Time // when the hub last accepted a reading, or none waited
	lastState  device.State
	lastReason device.Reason
}

// Counts is the number of readings by result.
type Counts struct {
	Taken        uint32
	Acknowledged uint32
	Lost         uint32 // dropped for newer ones, or refused by the hub
	StoreErrors  uint32
}

const (
	readBuffer = 512
	window     = 8
	inbox      = 4
)

// writeBuffer returns the size of the buffer that has to hold CONNECT: twice the hub's name, which
// a provisioning service tells later, four times the id, percent-encoded in places, and a token.
func writeBuffer(host, id string) int {
	const hubName = 70 // the longest of IoT Hub
	return max(512, 240+2*max(len(host), hubName)+4*len(id))
}

// New allocates the permanent memory of the firmware. The error names an invalid field.
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
	case stacksAreSmall(c.Now):
		return nil, errors.New("board: goroutines have small stacks; build with -stack-size=4kb")
	}
	f := &Firmware{
		cfg: c, pause: newPause(), ring: newRing(c.Slots, c.SlotSize),
		creds: transport.Credentials{Host: c.Host, DeviceID: c.DeviceID, Sign: c.Sign, Now: c.Now},
		mqtt:  engine.New(c.Dial, &engine.Options{ReadBuffer: readBuffer, WriteBuffer: writeBuffer(c.Host, c.DeviceID)}),
		opts: device.Options{
			Window:      window,
			MaxMessages: c.Slots - 1, // one slot is for the reading that drops the oldest
			MaxBytes:    c.Slots * c.SlotSize,
			Overflow:    device.OverflowDropOldest,
			// The number in the body identifies a reading. A message id would take 20 bytes of each message
			// and a copy in RAM.
			NoMessageIDs: true,
			Inbox:        inbox,
			// Nobody is there to restart the device.
			TryAgainAfter:   10 * time.Minute,
			ReconnectSpread: 2 * time.Second,
		},
	}
	f.opts.Rand = rand.NewPCG(c.Seed, texts.Hash(c.DeviceID)).Uint64
	if c.Wrap != nil {
		f.mqtt = c.Wrap(f.mqtt)
	}
	if c.Tune != nil {
		c.Tune(&f.opts)
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// load puts the readings from before the reset into the ring. If there are too many it keeps the
// newest.
func (f *Firmware) load() error {
	if f.cfg.Store == nil {
		return nil
	}
	// few, because a store has no more than the ring that filled it; Load must end before any Forget
	var lost []uint32
	last, err := f.cfg.Store.Load(func(number uint32, body []byte) {
		if len(body) > f.cfg.SlotSize {
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

// Counts returns the number of readings so far.
func (f *Firmware) Counts() Counts { return f.counts }

func (f *Firmware) client() (*device.Client, error) {
	client, err := device.New(&f.creds, f.mqtt, &f.opts)
	if err == nil && f.cfg.Command != nil {
		err = client.HandleMessages(func(_ context.Context, m *transport.Message) error {
			f.cfg.Command(m.Body)
			return nil
		})
	}
	return client, err
}

// Run stays connected, takes a reading each Interval and sends it to the hub, until ctx ends. Then
// it flushes for at most 10 s and closes. It checks ctx each FeedEvery.
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
			if next = next.Add(f.cfg.Interval); next.Before(now) {
				next = now.Add(f.cfg.Interval) // the board was busy: do not catch up
			}
		}
		f.feed(now)
		f.reportStatus(client)
		f.waitForResults(times.Earlier(next, now.Add(f.cfg.FeedEvery)))
		now = time.Now()
	}
	return f.finish(client, 10*time.Second)
}

// Cycle is one wake period of a board that sleeps. It takes a reading, connects, sends all waiting
// readings to the hub and disconnects, within limit (plus at most 5 s to close a hanging
// transport). Readings that the hub did not accept stay in the ring, if RAM survives the sleep, and
// in the Store. The error says why not all were accepted.
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

// Sleep waits for d and feeds the watchdog each FeedEvery. It is for boards whose watchdog runs
// during sleep, and whose sleep does not end with a reset.
func (f *Firmware) Sleep(d time.Duration) {
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		if f.cfg.Feed != nil {
			f.cfg.Feed()
		}
		time.Sleep(min(d, f.cfg.FeedEvery))
	}
}

// finish flushes, feeding the watchdog meanwhile, closes the client and takes all results.
func (f *Firmware) finish(client *device.Client, limit time.Duration) error {
	var err error
	now := time.Now()
	for end := now.Add(limit); ; {
		f.feed(now)
		start, slice := now, min(f.cfg.FeedEvery, end.Sub(now))
		stop := f.pause.endAfter(slice)
		err = client.Flush(f.pause)
		stop()
		if now = time.Now(); now.Sub(start) < slice/2 || !now.Before(end) { // half: timers of boards may be slightly early
			break
		}
	}
	if closing := client.Close(); err == nil {
		err = closing
	}
	f.collectResults() // every reading has its result by this point
	return err
}

// take puts a new reading into the ring.
func (f *Firmware) take() {
	f.number++
	f.counts.Taken++
	if f.ring.full() {
		f.counts.Lost++ // the oldest are in flight
		return
	}
	s := f.ring.add(f.number)
	b := appendReading(s.message.Body, f.number, f.cfg.Read)
	if len(b) > f.cfg.SlotSize {
		f.ring.undo()
		f.counts.Lost++
		return
	}
	s.message.Body = b
	if f.cfg.Store != nil && f.cfg.Store.Keep(f.number, b) != nil {
		f.counts.StoreErrors++
	}
}

// enqueue passes new readings to the client, in order.
func (f *Firmware) enqueue(client *device.Client) {
	for i := range f.ring.n {
		if s := f.ring.slots[i]; !s.sent {
			s.sent = client.Enqueue(context.Background(), &s.message, &s.receipt) == nil
		}
	}
}

// pollInterval is the polling interval while results are outstanding.
const pollInterval = 20 * time.Millisecond

// waitForResults takes results until end.
func (f *Firmware) waitForResults(end time.Time) {
	for {
		now := time.Now()
		f.collectResults()
		rest := end.Sub(now)
		if f.ring.n == 0 {
			f.progress = now
		} else {
			rest = min(rest, pollInterval)
		}
		if rest <= 0 {
			return
		}
		time.Sleep(rest)
	}
}

// collectResults takes the available results, in any order: dropped readings in the middle of the
// ring free slots for newer ones.
func (f *Firmware) collectResults() {
	for i := range f.ring.n {
		s := f.ring.slots[i]
		if s.sent && s.receipt.Ready() {
			f.recordResult(s, s.receipt.Wait(f.pause))
		}
	}
	f.ring.trim()
}

// recordResult processes the result of a reading.
func (f *Firmware) recordResult(s *slot, err error) {
	s.sent = false
	switch {
	case err == nil:
		f.counts.Acknowledged++
		f.progress = time.Now()
		f.forget(s.number)
		s.done = true
	case transport.KindOf(err) == transport.Closed: // keep it for the next connection
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
	if f.cfg.Store != nil && f.cfg.Store.Forget(number) != nil {
		f.counts.StoreErrors++
	}
}

// feed feeds the watchdog while there is progress.
func (f *Firmware) feed(now time.Time) {
	if f.cfg.Feed == nil || now.Sub(f.fed) < f.cfg.FeedEvery {
		return
	}
	f.fed = now
	if f.cfg.RebootAfter == 0 || now.Sub(f.progress) < f.cfg.RebootAfter {
		f.cfg.Feed()
	}
}

// reportStatus reports a change of the connection to Status. It polls, because OnStatus would cost
// a goroutine and a queue.
func (f *Firmware) reportStatus(client *device.Client) {
	if f.cfg.Status == nil {
		return
	}
	s := client.Status()
	if s.State != f.lastState || s.Reason != f.lastReason {
		f.lastState, f.lastReason = s.State, s.Reason
		f.cfg.Status(s)
	}
}
