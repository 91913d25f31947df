package amqpwire

// A Terminus is the target of a link: *Target or *Coordinator.
type Terminus interface{ composite }

// Expiry policies of a terminus. The default is SessionEnd.
const SessionEnd Symbol = "session-end"

// Source is the source of a link's messages [3.5.3].
type Source struct {
	Address               any // in practice a string; nil when absent
	Durable               uint32
	ExpiryPolicy          Symbol
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	DistributionMode      Symbol
	Filter                Map
	DefaultOutcome        any
	Outcomes              []Symbol
	Capabilities          []Symbol
}

func (*Source) code() uint64 { return codeSource }
func (s *Source) fields(f *fieldset) {
	anything(f, &s.Address)
	or(f, &s.Durable, 0)
	or(f, &s.ExpiryPolicy, expiry(f, s.ExpiryPolicy))
	or(f, &s.Timeout, 0)
	or(f, &s.Dynamic, false)
	slice(f, &s.DynamicNodeProperties)
	or(f, &s.DistributionMode, "")
	slice(f, &s.Filter)
	anything(f, &s.DefaultOutcome)
	symbols(f, &s.Outcomes)
	symbols(f, &s.Capabilities)
}

// Target is the destination of a link's messages [3.5.4].
type Target struct {
	Address               any // in practice a string; nil when absent
	Durable               uint32
	ExpiryPolicy          Symbol
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	Capabilities          []Symbol
}

func (*Target) code() uint64 { return codeTarget }
func (t *Target) fields(f *fieldset) {
	anything(f, &t.Address)
	or(f, &t.Durable, 0)
	or(f, &t.ExpiryPolicy, expiry(f, t.ExpiryPolicy))
	or(f, &t.Timeout, 0)
	or(f, &t.Dynamic, false)
	slice(f, &t.DynamicNodeProperties)
	symbols(f, &t.Capabilities)
}

// expiry returns the default of an expiry policy. When writing, an empty policy counts as the
// default, so it is not written.
func expiry(f *fieldset, policy Symbol) Symbol {
	if !f.reading && policy == "" {
		return ""
	}
	return SessionEnd
}

// Coordinator is the target of a link that controls transactions [4.5.1].
type Coordinator struct{ Capabilities []Symbol }

func (*Coordinator) code() uint64         { return codeCoordinator }
func (c *Coordinator) fields(f *fieldset) { symbols(f, &c.Capabilities) }

// A DeliveryState is *Received, *Accepted, *Rejected, *Released or *Modified.
type DeliveryState interface{ composite }

// Received reports the progress of a transfer [3.4.1].
type Received struct {
	SectionNumber uint32
	SectionOffset uint64
}

func (*Received) code() uint64 { return codeReceived }
func (r *Received) fields(f *fieldset) {
	must(f, &r.SectionNumber)
	must(f, &r.SectionOffset)
}

// Accepted is the outcome of a message that was processed [3.4.2].
type Accepted struct{}

func (*Accepted) code() uint64     { return codeAccepted }
func (*Accepted) fields(*fieldset) {}

// Rejected is the outcome of a message that is invalid [3.4.3].
type Rejected struct{ Error *Error }

func (*Rejected) code() uint64         { return codeRejected }
func (r *Rejected) fields(f *fieldset) { inner(f, &r.Error, errorKinds) }

// Released is the outcome of a message that was not processed [3.4.4].
type Released struct{}

func (*Released) code() uint64     { return codeReleased }
func (*Released) fields(*fieldset) {}

// Modified is the outcome of a message that was changed and not processed [3.4.5].
type Modified struct {
	DeliveryFailed     bool
	UndeliverableHere  bool
	MessageAnnotations Map
}

func (*Modified) code() uint64 { return codeModified }
func (m *Modified) fields(f *fieldset) {
	or(f, &m.DeliveryFailed, false)
	or(f, &m.UndeliverableHere, false)
	slice(f, &m.MessageAnnotations)
}

// ReadState reads a delivery state, in which a string may stand for a symbol.
func ReadState(b []byte) (DeliveryState, error) {
	v, _, err := Decode(b)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Described)
	if !ok {
		return nil, malformed("%T is not a composite", v)
	}
	c, bad := undescribe(d, states, true)
	if bad != nil {
		return nil, bad
	}
	return c, nil
}

var (
	sources = map[uint64]func() composite{codeSource: func() composite { return new(Source) }}
	targets = map[uint64]func() composite{
		codeTarget: func() composite { return new(Target) }, codeCoordinator: func() composite { return new(Coordinator) },
	}
	states = map[uint64]func() composite{
		codeReceived: func() composite { return new(Received) }, codeAccepted: func() composite { return new(Accepted) },
		codeRejected: func() composite { return new(Rejected) }, codeReleased: func() composite { return new(Released) },
		codeModified: func() composite { return new(Modified) },
	}
)
