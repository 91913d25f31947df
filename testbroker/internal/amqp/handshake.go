package amqp

import (
	"bytes"
	"errors"
	"slices"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// header reads the protocol header. If it is the SASL header, header runs the SASL handshake and
// reads another.
func (c *Conn) header() error {
	first, err := c.protocol()
	if err != nil {
		return err
	}
	if first == wire.ProtocolSASL {
		if err := c.sasl(); err != nil {
			return err
		}
		c.handshake = true
		if first, err = c.protocol(); err != nil {
			return err
		}
	}
	if first != wire.ProtocolAMQP {
		return c.wrongHeader()
	}
	c.writeHeader(wire.ProtocolAMQP)
	c.framing = true
	return nil
}

var errHeader = errors.New("amqp: protocol header that the server does not speak")

// protocol reads a protocol header and returns its id.
func (c *Conn) protocol() (byte, error) {
	if err := c.fill(wire.HeaderSize); err != nil {
		return 0, err
	}
	got := c.in[:wire.HeaderSize]
	c.in = c.in[wire.HeaderSize:]
	want := wire.ProtocolHeader(got[4])
	if id := got[4]; !bytes.Equal(got, want[:]) || id != wire.ProtocolAMQP && id != wire.ProtocolSASL {
		return 0, c.wrongHeader()
	}
	return got[4], nil
}

func (c *Conn) wrongHeader() error {
	id := wire.ProtocolSASL
	if c.handshake {
		id = wire.ProtocolAMQP
	}
	c.writeHeader(id)
	return errHeader
}

func (c *Conn) writeHeader(id byte) {
	h := wire.ProtocolHeader(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, h[:]...)
}

// sasl is the server side of the SASL handshake. A failure is sent as the outcome and ends the
// connection.
func (c *Conn) sasl() error {
	c.writeHeader(wire.ProtocolSASL)
	offered := c.handler.Mechanisms()
	c.say(0, &wire.Mechanisms{Mechanisms: offered}, nil)
	p, err := c.nextSASL()
	if err != nil {
		return err
	}
	init, ok := p.(*wire.Init)
	if !ok {
		return errors.New("amqp: SASL: not an init")
	}
	code := wire.SASLAuth
	if slices.Contains(offered, init.Mechanism) {
		if code, err = c.authenticate(init); err != nil {
			return err
		}
	}
	c.say(0, &wire.Outcome{Code: code}, nil)
	if code != wire.SASLOK {
		return &OutcomeError{code}
	}
	return nil
}

// maxSteps is how many challenges a SASL dialogue has at most.
const maxSteps = 8

// authenticate runs the dialogue of the chosen mechanism and returns the outcome code.
func (c *Conn) authenticate(init *wire.Init) (uint8, error) {
	handler, ok := c.handler.(Challenger)
	if !ok {
		return c.handler.Authenticate(init.Mechanism, init.InitialResponse), nil
	}
	response := init.InitialResponse
	for range maxSteps {
		challenge, code := handler.Challenge(init.Mechanism, response)
		if challenge == nil {
			return code, nil
		}
		c.say(0, &wire.Challenge{Challenge: challenge}, nil)
		p, err := c.nextSASL()
		if err != nil {
			return 0, err
		}
		next, ok := p.(*wire.Response)
		if !ok {
			return 0, errors.New("amqp: SASL: not a response")
		}
		response = next.Response
	}
	return wire.SASLAuth, nil
}

func (c *Conn) nextSASL() (wire.Performative, error) {
	f, err := c.next()
	if err != nil {
		return nil, err
	}
	if f.Type != wire.FrameSASL {
		return nil, errors.New("amqp: frame of AMQP in the dialogue of SASL")
	}
	p, _, err := f.Performative()
	if err != nil {
		return nil, errors.New("amqp: SASL: " + err.Error())
	}
	return p, nil
}

// OutcomeError is the result of Serve when the client was not authenticated.
type OutcomeError struct{ Code uint8 }

// Error returns the code as text.
func (e *OutcomeError) Error() string {
	return "amqp: SASL outcome " + string('0'+rune(e.Code))
}

func (c *Conn) open(channel uint16, o *wire.Open) error {
	if c.opened {
		return wire.Errorf(wire.IllegalState, "second open")
	}
	refusal := c.handler.Open(o)
	var violation *wire.Error
	if refusal != nil && !errors.As(refusal, &violation) {
		return refusal
	}
	c.answerOpen(o)
	switch idle := time.Duration(o.IdleTimeout.V) * time.Millisecond; {
	case refusal != nil:
		return violation
	case channel != 0:
		return wire.Errorf(wire.FramingError, "open on channel %d", channel)
	case o.ContainerID == "":
		return wire.Errorf(wire.InvalidField, "open without a container id")
	case o.MaxFrameSize < wire.MinMaxFrameSize:
		return wire.Errorf(wire.InvalidField, "max-frame-size %d, %d at least", o.MaxFrameSize, wire.MinMaxFrameSize)
	case idle > 0 && idle < leastIdle:
		return wire.Errorf(wire.NotAllowed, "idle-time-out of %s, %s at least", idle, leastIdle)
	default:
		c.watch(idle)
	}
	c.Flush()
	return c.handler.Opened()
}

func (c *Conn) answerOpen(o *wire.Open) {
	answer := &wire.Open{ContainerID: c.cfg.ContainerID, MaxFrameSize: c.cfg.MaxFrameSize, ChannelMax: c.cfg.ChannelMax}
	if c.cfg.IdleTimeout > 0 {
		answer.IdleTimeout = wire.Some(uint32((c.cfg.IdleTimeout / 2).Milliseconds()))
	}
	c.say(0, answer, nil)
	c.mu.Lock()
	c.frame, c.said = max(o.MaxFrameSize, wire.MinMaxFrameSize), true
	c.mu.Unlock()
	c.opened, c.limit = true, c.cfg.MaxFrameSize
}
