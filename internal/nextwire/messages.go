package nextwire

// Birth announces a connection to the service.
type Birth struct {
	SessionPresent                  bool // for diagnosis only
	ReportedVersion, DesiredVersion uint64
	PushDesired, PushReported       bool
}

func (m *Birth) fields(c *coder) {
	c.bool(1, &m.SessionPresent)
	c.uint64(10, &m.ReportedVersion)
	c.uint64(11, &m.DesiredVersion)
	c.bool(12, &m.PushDesired)
	c.bool(13, &m.PushReported)
}

// BirthAck answers a Birth. Its fields have the other order.
type BirthAck struct{ DesiredVersion, ReportedVersion uint64 }

func (m *BirthAck) fields(c *coder) {
	c.uint64(10, &m.DesiredVersion)
	c.uint64(11, &m.ReportedVersion)
}

// Sections are the parts of a twin that a TwinGet asks for. Zero is refused.
type Sections int32

// Values of Sections.
const (
	SectionDesired  Sections = 1
	SectionReported Sections = 2
	SectionBoth     Sections = 3
)

// TwinGet requests a twin. A filter of 0 is none.
type TwinGet struct {
	Sections                              Sections
	IfNotMatchDesired, IfNotMatchReported uint64
}

func (m *TwinGet) fields(c *coder) {
	c.int32(1, (*int32)(&m.Sections))
	c.uint64(2, &m.IfNotMatchDesired)
	c.uint64(3, &m.IfNotMatchReported)
}

// GetResponse answers a TwinGet: both versions always, and each payload that was requested and is
// not the filtered one. Nil is none.
type GetResponse struct {
	DesiredVersion, ReportedVersion uint64
	Desired, Reported               []byte
}

func (m *GetResponse) fields(c *coder) {
	c.uint64(1, &m.DesiredVersion)
	c.uint64(2, &m.ReportedVersion)
	c.optionalBytes(3, &m.Desired)
	c.optionalBytes(4, &m.Reported)
}

// ReportedPatch changes reported properties if they have the version IfMatch.
type ReportedPatch struct {
	IfMatch uint64
	Payload []byte
}

func (m *ReportedPatch) fields(c *coder) {
	c.uint64(1, &m.IfMatch)
	c.bytes(2, &m.Payload)
}

// PatchResult is the outcome of a ReportedPatch.
type PatchResult int32

// Values of PatchResult.
const (
	PatchOK              PatchResult = 1
	PatchVersionMismatch PatchResult = 2
	PatchPayloadInvalid  PatchResult = 3
	PatchPayloadTooLarge PatchResult = 4
	PatchInternalError   PatchResult = 5
)

// PatchResponse answers a ReportedPatch. Version is the new one, or the unchanged one of a failure.
type PatchResponse struct {
	Result  PatchResult
	Version uint64
}

func (m *PatchResponse) fields(c *coder) {
	c.int32(1, (*int32)(&m.Result))
	c.uint64(2, &m.Version)
}

// TwinPush has whole sections after a birth that asked for them. Nil is none.
type TwinPush struct{ Desired, Reported *Section }

func (m *TwinPush) fields(c *coder) {
	optional(c, 1, &m.Desired)
	optional(c, 2, &m.Reported)
}

// Section is one of the two parts of a twin.
type Section struct {
	Version uint64
	Payload []byte
}

func (m *Section) fields(c *coder) {
	c.uint64(1, &m.Version)
	c.bytes(2, &m.Payload)
}

// DesiredPatch is a change of desired properties, and Version the one after it. Without a payload
// it tells the version alone.
type DesiredPatch struct {
	Version uint64
	Payload []byte
}

func (m *DesiredPatch) fields(c *coder) {
	c.uint64(1, &m.Version)
	c.bytes(2, &m.Payload)
}

// Probe asks whether the device takes a method that has so many seconds to answer.
type Probe struct {
	Method          string
	ResponseTimeout uint32
}

func (m *Probe) fields(c *coder) {
	c.string(1, &m.Method)
	c.uint32(2, &m.ResponseTimeout)
}

// ProbeAck answers a Probe: one of the two is set.
type ProbeAck struct {
	Ready    *Ready
	Rejected *Rejected
}

func (m *ProbeAck) fields(c *coder) {
	if optional(c, 1, &m.Ready) {
		m.Rejected = nil
	}
	if optional(c, 2, &m.Rejected) {
		m.Ready = nil
	}
}

// Ready says that the device takes one Exec with this id.
type Ready struct{ ID []byte }

func (m *Ready) fields(c *coder) { c.bytes(1, &m.ID) }

// RejectReason is why the device does not take a method.
type RejectReason int32

// Values of RejectReason.
const (
	RejectMethodNotFound   RejectReason = 1
	RejectInsufficientTime RejectReason = 2
	RejectDeviceBusy       RejectReason = 3
)

// Rejected says that the device does not take the method.
type Rejected struct{ Reason RejectReason }

func (m *Rejected) fields(c *coder) { c.int32(1, (*int32)(&m.Reason)) }

// Exec runs the method of a Probe, with the id of its Ready. Start is for observation only.
type Exec struct {
	ReadyID, Params []byte
	Start           *Timestamp
}

func (m *Exec) fields(c *coder) {
	c.bytes(1, &m.ReadyID)
	c.bytes(2, &m.Params)
	optional(c, 3, &m.Start)
}

// Timestamp is google.protobuf.Timestamp: the time since 1970.
type Timestamp struct {
	Seconds     int64
	Nanoseconds int32
}

func (m *Timestamp) fields(c *coder) {
	c.int64(1, &m.Seconds)
	c.int32(2, &m.Nanoseconds)
}

// Result is what a method returned.
type Result struct {
	Status int32
	Body   []byte
}

func (m *Result) fields(c *coder) {
	c.int32(1, &m.Status)
	c.bytes(2, &m.Body)
}

// AbandonReason is why the device gives a ready method up.
type AbandonReason int32

// Values of AbandonReason.
const (
	AbandonReadyWaitTimeout AbandonReason = 1
	AbandonInsufficientTime AbandonReason = 2
)

// Abandon says that the device takes no Exec with this id any more.
type Abandon struct {
	ReadyID []byte
	Reason  AbandonReason
}

func (m *Abandon) fields(c *coder) {
	c.bytes(1, &m.ReadyID)
	c.int32(2, (*int32)(&m.Reason))
}
