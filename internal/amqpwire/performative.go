package amqpwire

// A Performative is the content of a frame: *Open, *Begin, *Attach, *Flow, *Transfer, *Disposition,
// *Detach, *End, *Close, *Mechanisms, *Init, *Challenge, *Response or *Outcome.
type Performative interface{ composite }

// Roles of a link's end.
const (
	RoleSender   = false
	RoleReceiver = true
)

// Settle modes of a sender.
const (
	SendUnsettled uint8 = iota
	SendSettled
	SendMixed
)

// Settle modes of a receiver.
const (
	ReceiveFirst uint8 = iota
	ReceiveSecond
)

const (
	maxUint16 = 1<<16 - 1
	maxUint32 = 1<<32 - 1
)

// Open begins a connection [2.7.1].
type Open struct {
	ContainerID         string
	Hostname            string
	MaxFrameSize        uint32 // default 2^32-1
	ChannelMax          uint16 // default 65535
	IdleTimeout         Opt[uint32]
	OutgoingLocales     []Symbol
	IncomingLocales     []Symbol
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

func (*Open) code() uint64 { return codeOpen }
func (o *Open) fields(f *fieldset) {
	must(f, &o.ContainerID)
	or(f, &o.Hostname, "")
	or(f, &o.MaxFrameSize, maxUint32)
	or(f, &o.ChannelMax, maxUint16)
	may(f, &o.IdleTimeout) // milliseconds
	symbols(f, &o.OutgoingLocales)
	symbols(f, &o.IncomingLocales)
	symbols(f, &o.OfferedCapabilities)
	symbols(f, &o.DesiredCapabilities)
	slice(f, &o.Properties)
}

// Begin begins a session [2.7.2].
type Begin struct {
	RemoteChannel       Opt[uint16] // set in an answer
	NextOutgoingID      uint32
	IncomingWindow      uint32
	OutgoingWindow      uint32
	HandleMax           uint32 // default 2^32-1
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

func (*Begin) code() uint64 { return codeBegin }
func (b *Begin) fields(f *fieldset) {
	may(f, &b.RemoteChannel)
	must(f, &b.NextOutgoingID)
	must(f, &b.IncomingWindow)
	must(f, &b.OutgoingWindow)
	or(f, &b.HandleMax, maxUint32)
	symbols(f, &b.OfferedCapabilities)
	symbols(f, &b.DesiredCapabilities)
	slice(f, &b.Properties)
}

// Attach attaches a link [2.7.3].
type Attach struct {
	Name                 string
	Handle               uint32
	Role                 bool  // the role of its sender
	SndSettleMode        uint8 // default SendMixed
	RcvSettleMode        uint8 // default ReceiveFirst
	Source               *Source
	Target               Terminus // *Target, *Coordinator or nil
	Unsettled            Map
	IncompleteUnsettled  bool
	InitialDeliveryCount Opt[uint32] // mandatory if Role is RoleSender
	MaxMessageSize       uint64      // zero = none
	OfferedCapabilities  []Symbol
	DesiredCapabilities  []Symbol
	Properties           Map
}

func (*Attach) code() uint64 { return codeAttach }
func (a *Attach) fields(f *fieldset) {
	must(f, &a.Name)
	must(f, &a.Handle)
	must(f, &a.Role)
	or(f, &a.SndSettleMode, SendMixed)
	or(f, &a.RcvSettleMode, ReceiveFirst)
	inner(f, &a.Source, sources)
	inner(f, &a.Target, targets)
	slice(f, &a.Unsettled)
	or(f, &a.IncompleteUnsettled, false)
	may(f, &a.InitialDeliveryCount)
	or(f, &a.MaxMessageSize, 0)
	symbols(f, &a.OfferedCapabilities)
	symbols(f, &a.DesiredCapabilities)
	slice(f, &a.Properties)
}

// Flow updates windows and credit [2.7.4].
type Flow struct {
	NextIncomingID Opt[uint32]
	IncomingWindow uint32
	NextOutgoingID uint32
	OutgoingWindow uint32
	Handle         Opt[uint32]
	DeliveryCount  Opt[uint32]
	LinkCredit     Opt[uint32]
	Available      Opt[uint32]
	Drain          bool
	Echo           bool
	Properties     Map
}

func (*Flow) code() uint64 { return codeFlow }
func (w *Flow) fields(f *fieldset) {
	may(f, &w.NextIncomingID)
	must(f, &w.IncomingWindow)
	must(f, &w.NextOutgoingID)
	must(f, &w.OutgoingWindow)
	may(f, &w.Handle)
	may(f, &w.DeliveryCount)
	may(f, &w.LinkCredit)
	may(f, &w.Available)
	or(f, &w.Drain, false)
	or(f, &w.Echo, false)
	slice(f, &w.Properties)
}

// Transfer carries a message or a part of one; its bytes follow the performative [2.7.5].
type Transfer struct {
	Handle        uint32
	DeliveryID    Opt[uint32]
	DeliveryTag   []byte
	MessageFormat Opt[uint32]
	Settled       Opt[bool]
	More          bool
	RcvSettleMode Opt[uint8]
	State         DeliveryState
	Resume        bool
	Aborted       bool
	Batchable     bool
}

func (*Transfer) code() uint64 { return codeTransfer }
func (t *Transfer) fields(f *fieldset) {
	must(f, &t.Handle)
	may(f, &t.DeliveryID)
	slice(f, &t.DeliveryTag)
	may(f, &t.MessageFormat)
	may(f, &t.Settled)
	or(f, &t.More, false)
	may(f, &t.RcvSettleMode)
	inner(f, &t.State, states)
	or(f, &t.Resume, false)
	or(f, &t.Aborted, false)
	or(f, &t.Batchable, false)
}

// Disposition reports the state of deliveries [2.7.6].
type Disposition struct {
	Role      bool // the role of its sender
	First     uint32
	Last      Opt[uint32]
	Settled   bool
	State     DeliveryState
	Batchable bool
}

func (*Disposition) code() uint64 { return codeDisposition }
func (d *Disposition) fields(f *fieldset) {
	must(f, &d.Role)
	must(f, &d.First)
	may(f, &d.Last)
	or(f, &d.Settled, false)
	inner(f, &d.State, states)
	or(f, &d.Batchable, false)
}

// Detach detaches a link [2.7.7].
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

func (*Detach) code() uint64 { return codeDetach }
func (d *Detach) fields(f *fieldset) {
	must(f, &d.Handle)
	or(f, &d.Closed, false)
	inner(f, &d.Error, errorKinds)
}

// End ends a session [2.7.8].
type End struct{ Error *Error }

func (*End) code() uint64         { return codeEnd }
func (e *End) fields(f *fieldset) { inner(f, &e.Error, errorKinds) }

// Close ends a connection [2.7.9].
type Close struct{ Error *Error }

func (*Close) code() uint64         { return codeClose }
func (c *Close) fields(f *fieldset) { inner(f, &c.Error, errorKinds) }

func (*Error) code() uint64 { return codeError }
func (e *Error) fields(f *fieldset) {
	must(f, &e.Condition)
	or(f, &e.Description, "")
	slice(f, &e.Info)
}

// Mechanisms are the SASL mechanisms that a server offers [5.3.3.1].
type Mechanisms struct{ Mechanisms []Symbol }

func (*Mechanisms) code() uint64         { return codeMechanisms }
func (m *Mechanisms) fields(f *fieldset) { symbols(f, &m.Mechanisms) }

// Init is the client's choice of a mechanism [5.3.3.2].
type Init struct {
	Mechanism       Symbol
	InitialResponse []byte
	Hostname        string
}

func (*Init) code() uint64 { return codeInit }
func (i *Init) fields(f *fieldset) {
	must(f, &i.Mechanism)
	slice(f, &i.InitialResponse)
	or(f, &i.Hostname, "")
}

// Challenge is a SASL challenge of the server [5.3.3.3].
type Challenge struct{ Challenge []byte }

func (*Challenge) code() uint64         { return codeChallenge }
func (c *Challenge) fields(f *fieldset) { must(f, &c.Challenge) }

// Response is the client's answer to a challenge [5.3.3.4].
type Response struct{ Response []byte }

func (*Response) code() uint64         { return codeResponse }
func (r *Response) fields(f *fieldset) { must(f, &r.Response) }

// Codes of an outcome.
const (
	SASLOK uint8 = iota
	SASLAuth
	SASLSys
	SASLSysPerm
	SASLSysTemp
)

// Outcome ends the SASL dialogue [5.3.3.6].
type Outcome struct {
	Code           uint8
	AdditionalData []byte
}

func (*Outcome) code() uint64 { return codeOutcome }
func (o *Outcome) fields(f *fieldset) {
	must(f, &o.Code)
	slice(f, &o.AdditionalData)
}

var (
	performatives = map[uint64]func() composite{
		codeOpen: func() composite { return new(Open) }, codeBegin: func() composite { return new(Begin) },
		codeAttach: func() composite { return new(Attach) }, codeFlow: func() composite { return new(Flow) },
		codeTransfer: func() composite {
			return new(Transfer)
		}, codeDisposition: func() composite { return new(Disposition) },
		codeDetach: func() composite { return new(Detach) }, codeEnd: func() composite { return new(End) },
		codeClose: func() composite { return new(Close) },
	}
	saslPerformatives = map[uint64]func() composite{
		codeMechanisms: func() composite { return new(Mechanisms) }, codeInit: func() composite { return new(Init) },
		codeChallenge: func() composite { return new(Challenge) }, codeResponse: func() composite { return new(Response) },
		codeOutcome: func() composite { return new(Outcome) },
	}
	errorKinds = map[uint64]func() composite{codeError: func() composite { return new(Error) }}
)
