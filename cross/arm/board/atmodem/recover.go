package atmodem

import (
	"context"
	"math/bits"
	"time"
)

// rung is what a dial resets before it connects.
type rung uint8

const (
	nothing rung = iota
	data         // the data connection
	radio        // the modem's radio
	power        // the modem
)

// Weights of failures in a row.
const (
	weightRefusal = 1 // the modem is in order: the network or the hub is not
	weightFault   = 4 // the modem does not do what it should
)

// rungs are what is reset when that many failures have come together. From powerFrom on it is the
// modem, at each power of two, so that a hub that is away for long costs ever fewer restarts.
var rungs = [...]struct {
	failures int
	rung     rung
}{{4, data}, {8, radio}}

const powerFrom = 16

// rungAfter returns what to reset after the number of failures has grown.
func rungAfter(before, after int) (r rung) {
	for _, step := range rungs {
		if before < step.failures && step.failures <= after {
			r = step.rung
		}
	}
	if after >= powerFrom && bits.Len(uint(before)) < bits.Len(uint(after)) {
		r = power
	}
	return r
}

// maxFailures bounds the count.
const maxFailures = 1 << 20

// failed counts a failed dial.
func (m *Modem) failed(weight int) {
	before := m.failures
	m.failures = min(before+weight, maxFailures)
	m.due = max(m.due, rungAfter(before, m.failures))
}

// recover resets what is due. It continues a power cycle that a context ended.
func (m *Modem) recover(s stopper) error {
	if m.phase != 0 {
		return m.powerCycle(s)
	}
	due := m.due
	m.due = nothing
	switch due {
	case nothing:
	case data:
		m.attached = false
	case radio:
		if err := m.settle(s); err != nil {
			return err
		}
		m.detached()
		m.ready = false
		return m.all(s, m.cfg.Dialect.radio)
	case power:
		if m.canRestart() {
			return m.powerCycle(s)
		}
		if err := m.settle(s); err != nil {
			return err
		}
		m.forget()
		m.until = time.Now().Add(m.cfg.Dialect.key.boot)
		_, _ = m.run(s, &m.cfg.Dialect.restart, nil, nil) // it need not answer
	}
	return nil
}

// canRestart reports whether the board can restart the modem.
func (m *Modem) canRestart() bool { return m.cfg.PowerKey != nil || m.cfg.PowerCycle != nil }

// forget notes that nothing is known about the modem.
func (m *Modem) forget() {
	m.ready, m.unsettled, m.torn, m.clockSeen, m.openID = false, true, false, false, -1
	m.search, m.denied = time.Time{}, time.Time{}
	m.detached()
}

// Phases of a power cycle. A dial has less time than a power cycle takes, so the next one goes on
// with the phase.
const (
	phaseOff  = iota + 1 // PWRKEY is pressed, to switch off
	phaseDown            // the modem switches off
	phaseOn              // PWRKEY is pressed, to switch on
)

// powerCycle restarts the modem. PWRKEY toggles: a modem that was off is on after the first press,
// and answers.
func (m *Modem) powerCycle(s stopper) error {
	key := m.cfg.Dialect.key
	m.forget()
	if m.cfg.PowerCycle != nil {
		ctx := context.Background()
		if c, ok := s.(byContext); ok {
			ctx = c.ctx
		}
		m.cfg.PowerCycle(ctx)
		m.until = time.Now().Add(key.boot)
		return nil
	}
	if m.phase == 0 {
		m.phase = phaseOff
	}
	if m.phase == phaseOff {
		if !m.press(s, key.off) {
			return abandonment(s)
		}
		m.phase, m.until = phaseDown, time.Now().Add(key.down)
	}
	if m.phase == phaseDown {
		if !m.wait(s, time.Until(m.until)) {
			return abandonment(s)
		}
		m.phase = phaseOn
	}
	if _, o := m.run(s, &probe, nil, nil); o == abandoned {
		return abandonment(s)
	} else if o != done && !m.press(s, key.on) {
		return abandonment(s)
	}
	m.phase, m.until = 0, time.Now().Add(key.boot)
	return nil
}

// press presses PWRKEY for d. It releases it in any case.
func (m *Modem) press(s stopper, d time.Duration) bool {
	m.cfg.PowerKey(true)
	defer m.cfg.PowerKey(false)
	return m.wait(s, d)
}
