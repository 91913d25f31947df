package amqpclient

import (
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// maxChallenges bounds a SASL dialogue.
const maxChallenges = 100

// authenticate runs a SASL dialogue [5.3].
func (c *Conn) authenticate(o *Options) error {
	switch id, err := c.exchangeHeaders(wire.ProtocolSASL, nil); {
	case err != nil:
		return err
	case id != wire.ProtocolSASL:
		return ErrNoMechanism
	}
	p, err := c.nextSASL(codeMechanisms)
	if err != nil {
		return err
	}
	offer := p.(*wire.Mechanisms).Mechanisms
	at := slices.IndexFunc(o.SASL, func(i wire.Init) bool { return slices.Contains(offer, i.Mechanism) })
	if at < 0 {
		return ErrNoMechanism
	}
	if err := c.say(&o.SASL[at]); err != nil {
		return err
	}
	for range maxChallenges {
		p, err := c.nextSASL(codeChallenge, codeOutcome)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case *wire.Outcome:
			if p.Code != wire.SASLOK {
				return &SASLError{int(p.Code)}
			}
			return nil
		case *wire.Challenge:
			if o.Respond == nil {
				return BrokenHandshake("a challenge, which the mechanism does not have")
			}
			response, err := o.Respond(p.Challenge)
			if err != nil {
				return err
			}
			if err := c.say(&wire.Response{Response: response}); err != nil {
				return err
			}
		}
	}
	return BrokenHandshake("the dialogue does not end")
}

// nextSASL reads a frame of the dialogue, which must have one of the codes.
func (c *Conn) nextSASL(codes ...uint64) (wire.Performative, error) {
	f, err := c.nextFrame(wire.FrameSASL)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return nil, BrokenHandshake("a frame is empty")
	case !slices.Contains(codes, f.code):
		return nil, misplaced(f.code).during(true)
	}
	p, _, err := wire.Frame{Type: wire.FrameSASL, Body: f.body, Tolerant: true}.Performative()
	if err != nil {
		return nil, BrokenHandshake("a frame cannot be decoded")
	}
	return p, nil
}
