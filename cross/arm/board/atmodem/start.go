package atmodem

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

const (
	// syncTries is how often a modem is asked whether it is there, a second each.
	syncTries = 5
	// quiet is how long a line is silent when no answer is outstanding.
	quiet = 100 * time.Millisecond
	// noiseLimit bounds the wait for that.
	noiseLimit = 2 * time.Second
	// searchLimit is how long a modem may look for a network before its radio is restarted.
	searchLimit = 3 * time.Minute
	// deniedLimit is how long the network may deny the SIM before that is believed: while a modem
	// looks for a network others deny it.
	deniedLimit = 30 * time.Second
	// simLimit is how long a SIM may be busy after a start.
	simLimit = 10 * time.Second
	// clockLimit is how long the network may take to tell the time after the registration.
	clockLimit = 10 * time.Second
	// clockSlack is how far two answers about the time may differ from the time between them.
	clockSlack = 2 * time.Second
	// pollNetwork is the time between two questions about the network.
	pollNetwork = time.Second
)

var probe = command{text: "", seconds: 1}

// start brings the modem up to the network. It continues where an earlier call ended.
func (m *Modem) start(s stopper) error {
	if err := m.prepare(s); err != nil {
		return err
	}
	if !m.ready {
		if err := m.unlock(s); err != nil {
			return err
		}
		m.ready = true
	}
	return m.register(s)
}

// prepare makes the modem answer, with its settings.
func (m *Modem) prepare(s stopper) error {
	m.poll()
	err := m.recover(s)
	if err == nil {
		err = m.settle(s)
	}
	if err == nil && !m.ready {
		err = m.all(s, m.cfg.Dialect.settings)
	}
	return err
}

// all executes commands.
func (m *Modem) all(s stopper, list []command) error {
	for i := range list {
		c := &list[i]
		if !m.applies(c) {
			continue
		}
		if _, o := m.run(s, c, nil, nil); o != done && (o != refused || !c.optional) {
			return m.errorOf(s, c, o)
		}
	}
	return nil
}

// wait waits for d, and processes events.
func (m *Modem) wait(s stopper, d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end); m.cfg.Port.Pause() {
		if s.stopped() {
			return false
		}
		m.poll()
	}
	return true
}

// settle finds the end of what the modem says, unless that is known. A modem that does not answer
// is restarted.
func (m *Modem) settle(s stopper) error {
	if m.ready && !m.unsettled {
		return nil
	}
	o := m.sync(s)
	if o == silent && m.canRestart() {
		if err := m.powerCycle(s); err != nil {
			return err
		}
		o = m.sync(s)
	}
	switch o {
	case done:
		return nil
	case abandoned:
		return abandonment(s)
	default:
		return errNoAnswer
	}
}

// sync waits until the modem answers. While it starts it has time for that.
func (m *Modem) sync(s stopper) outcome {
	if m.torn && m.canRestart() {
		return silent // the hub would receive the next command as payload
	}
	for try := 0; try < syncTries || time.Now().Before(m.until); try++ {
		if !m.silence(s) {
			return abandoned
		}
		_, o := m.run(s, &probe, nil, nil)
		if o == abandoned {
			return abandoned
		}
		if o == done && m.silence(s) {
			m.unsettled, m.torn = false, false
			return done
		}
	}
	return silent
}

// silence waits until the line is silent, for a bounded time.
func (m *Modem) silence(s stopper) bool {
	since := time.Now()
	for end := since.Add(noiseLimit); time.Since(since) < quiet && time.Now().Before(end); m.cfg.Port.Pause() {
		if s.stopped() {
			return false
		}
		if m.line.fill() {
			since = time.Now()
			m.poll()
		}
	}
	return true
}

var (
	askSIM = command{text: "+CPIN?", info: "+CPIN: "}
	setPIN = command{text: `+CPIN="%k"`, seconds: 10}
)

// simState is what a SIM wants.
type simState uint8

const (
	simUnknown simState = iota
	simReady
	simPIN
	simPUK
	simBusy
	simAbsent
)

// simTexts are the answers to AT+CPIN? (3GPP TS 27.007, 8.3).
var simTexts = [...]struct {
	text  string
	state simState
}{{"READY", simReady}, {"SIM PIN", simPIN}, {"SIM PUK", simPUK}, {"NOT READY", simBusy}, {"NOT INSERTED", simAbsent}}

// simErrors are the numbers of +CME ERROR about the SIM (3GPP TS 27.007, 9.2).
var simErrors = [...]struct {
	code  int
	state simState
}{{10, simAbsent}, {11, simPIN}, {12, simPUK}, {13, simBusy}, {14, simBusy}}

// simState returns what an answer to AT+CPIN? says.
func (m *Modem) simState(o outcome) simState {
	for _, t := range simTexts {
		if o == done && string(m.answer()) == t.text {
			return t.state
		}
	}
	for _, e := range simErrors {
		if o == refused && m.code == e.code {
			return e.state
		}
	}
	return simUnknown
}

// unlock waits for the SIM and gives it the PIN, if it wants one.
func (m *Modem) unlock(s stopper) error {
	for end := time.Now().Add(simLimit); ; {
		_, o := m.run(s, &askSIM, nil, nil)
		switch m.simState(o) {
		case simReady:
			if m.pin == pinTried {
				m.pin = pinRight
			}
			return nil
		case simPIN:
			return m.givePIN(s)
		case simPUK:
			return errPUK
		case simAbsent:
			return errNoSIM
		case simUnknown:
			if o != done {
				return m.errorOf(s, &askSIM, o)
			}
		case simBusy:
		}
		if !time.Now().Before(end) {
			return errSIMBusy
		}
		if !m.wait(s, pollNetwork) {
			return abandonment(s)
		}
	}
}

// threeTries is what a SIM has left as long as no PIN was wrong.
const threeTries = 3

// givePIN tries the PIN. It counts as tried from before it is sent, whatever comes back.
func (m *Modem) givePIN(s stopper) error {
	d := m.cfg.Dialect
	switch {
	case m.cfg.PIN == "":
		return errNoPIN
	case m.pin == pinTried:
		return errPIN
	}
	_, o := m.run(s, &d.tries, nil, nil)
	switch {
	case o != done && o != refused:
		return m.errorOf(s, &d.tries, o)
	case m.simState(o) == simBusy:
		return errSIMBusy
	case number(field(m.answer(), d.triesField)) != threeTries:
		return errTries
	}
	m.pin = pinTried
	_, o = m.run(s, &setPIN, nil, nil)
	switch o {
	case done:
		m.pin = pinRight
		return nil
	case refused:
		return errPIN
	default:
		return m.errorOf(s, &setPIN, o)
	}
}

// registrations ask about the networks for packets in LTE and before, and for calls.
var registrations = [...]command{
	{text: "+CEREG?", info: "+CEREG: "}, {text: "+CGREG?", info: "+CGREG: "}, {text: "+CREG?", info: "+CREG: "},
}

// States of a registration (3GPP TS 27.007, 7.2 and 10.1).
const (
	regHome    = 1
	regDenied  = 3
	regRoaming = 5
)

// register waits until the modem is in a network.
func (m *Modem) register(s stopper) error {
	if m.search.IsZero() {
		m.search = time.Now()
	}
	for {
		denied := false
		for i := range registrations {
			c := &registrations[i]
			_, o := m.run(s, c, nil, nil)
			if o == refused {
				continue
			}
			if o != done {
				return m.errorOf(s, c, o)
			}
			switch number(field(m.answer(), 2)) {
			case regHome, regRoaming:
				m.search, m.denied = time.Time{}, time.Time{}
				return nil
			case regDenied:
				denied = true
			}
		}
		now := time.Now()
		switch {
		case !denied:
			m.denied = time.Time{}
		case m.denied.IsZero():
			m.denied = now
		case now.Sub(m.denied) >= deniedLimit:
			m.denied = time.Time{}
			return errDenied
		}
		if now.Sub(m.search) >= searchLimit {
			m.search = time.Time{}
			return errNoSignal
		}
		if !m.wait(s, pollNetwork) {
			return abandonment(s)
		}
	}
}

// attach makes the data connection.
func (m *Modem) attach(s stopper) error {
	if m.attached {
		return nil
	}
	service := m.service()
	for i := range service.detach {
		_, o := m.run(s, &service.detach[i], nil, nil)
		if o == abandoned || o == rebooted {
			return m.errorOf(s, &service.detach[i], o)
		}
	}
	if err := m.settle(s); err != nil {
		return err
	}
	m.openID = -1
	if err := m.all(s, service.attach); err != nil {
		return err
	}
	m.attached = true
	return nil
}

// readClock asks for the network's time until it is known: two answers in a row agree, because
// noise on the line can change a digit.
func (m *Modem) readClock(s stopper) error {
	d := m.cfg.Dialect
	var none transport.Credentials
	var latest, at time.Time // the answer before, and when it came
	for end := time.Now().Add(clockLimit); ; {
		_, o := m.run(never{}, &d.clock, nil, nil) // an open connection must not suffer
		if o != done && o != refused {
			return m.errorOf(s, &d.clock, o)
		}
		text := m.answer()
		if q := lastQuote(text); q > 0 {
			text = text[:q+1]
		}
		t, ok := parseClock(text, d.utc)
		ok = ok && !none.Implausible(t)
		now := time.Now()
		apart := t.Sub(latest) - now.Sub(at)
		if ok && !at.IsZero() && -clockSlack <= apart && apart <= clockSlack {
			m.clock.Set(t)
			m.clockSeen = true
			return nil
		}
		pause := pollNetwork
		if ok {
			latest, at, pause = t, now, 0
		}
		if !now.Before(end) {
			return errClock
		}
		if !m.wait(s, pause) || s.stopped() {
			return abandonment(s)
		}
	}
}

// lastQuote returns where the last quotation mark is, -1 if there is none.
func lastQuote(text []byte) int {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == '"' {
			return i
		}
	}
	return -1
}
