package nexthub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// twin translates the twin for one connection. Package device counts the versions of the desired
// properties and reads the twin when it missed some; so nothing is buffered here, and nothing is
// requested that device did not ask for.
type twin struct {
	nonce  nextwire.ID // of the connection: pushes and patches with another one belong to an earlier one
	random [11]byte    // begins the correlation of requests

	desired  uint64 // the newest version that the service named; 0: not known
	reported uint64 // the version that the service named last; 0: not known
	pushing  bool   // the service will push the desired properties
	held     uint32 // the read that waits for the push; 0: none
	pushed   uint64 // the version that was pushed before the first read; 0: none, or the read has come
	patch    patch  // the latest one on no condition
}

// patch is a patch on no condition. It goes with the version that was known, and again with the one
// that the service names. Decision: if_match 0 is not sent, as it may mean any version or no
// version.
type patch struct {
	id    uint32
	body  []byte
	tries byte
}

// maxTries bounds the tries of a patch against others that patch the same twin.
const maxTries = 4

// correlation of a request: random bytes of the connection, a byte for the operation, and the
// request's id. So an answer of the wrong type is noticed without a table of pending requests.
const (
	correlationOp = 11
	correlationID = 12
)

// Operations in a correlation. opPatch plus a number is a try of a patch on no condition, so that a
// repeated answer to one try is not taken for that to the next.
const (
	opGet = iota
	opGetDesired
	opPatchIf
	opPatch
)

// begin adopts the versions of a birth-ack. held is the desired version in the birth, and push
// whether the birth asked for a push.
func (t *twin) begin(ack *nextwire.BirthAck, held uint64, push bool) {
	t.desired, t.reported = ack.DesiredVersion, ack.ReportedVersion
	t.pushing = push && ack.DesiredVersion != held
}

// request returns the message for OpTwinGet or OpTwinPatch. Nil: nothing is sent, because the
// client has the newest properties and gets the reply, or because the service will push them.
func (t *twin) request(r *transport.Request) (*transport.Message, *transport.Reply) {
	switch {
	case r.Op == transport.OpTwinPatch:
		if r.Version == 0 {
			t.patch = patch{id: r.ID, body: append([]byte(nil), r.Body...)}
			return t.tryPatch(), nil
		}
		m := nextwire.ReportedPatch{IfMatch: uint64(r.Version), Payload: r.Body}
		return t.message(nextwire.TypeReportedPatch, opPatchIf, r.ID, &m), nil
	case r.Want != transport.FeatureDesired:
		return t.message(nextwire.TypeTwinGet, opGet, r.ID, &nextwire.TwinGet{Sections: nextwire.SectionBoth}), nil
	case t.pushing && t.held == 0:
		t.held = r.ID
		return nil, nil
	case r.Version != 0 && uint64(r.Version) == t.desired:
		return nil, &transport.Reply{Version: r.Version}
	case t.pushed != 0 && t.pushed == t.desired: // it was asked before the push had come
		t.pushed = 0
		return nil, &transport.Reply{Version: version(t.desired)}
	}
	t.pushing, t.pushed = false, 0 // the read before this one got no answer
	get := nextwire.TwinGet{Sections: nextwire.SectionDesired, IfNotMatchDesired: uint64(r.Version)}
	return t.message(nextwire.TypeTwinGet, opGetDesired, r.ID, &get), nil
}

func (t *twin) tryPatch() *transport.Message {
	t.patch.tries++
	m := nextwire.ReportedPatch{IfMatch: t.reported, Payload: t.patch.body}
	return t.message(nextwire.TypeReportedPatch, opPatch+t.patch.tries, t.patch.id, &m)
}

func (t *twin) message(typ string, op byte, id uint32, m nextwire.Message) *transport.Message {
	var correlation nextwire.ID
	copy(correlation[:], t.random[:])
	correlation[correlationOp] = op
	binary.BigEndian.PutUint32(correlation[correlationID:], id)
	return envelope(typ, correlation, m, time.Time{})
}

// report is what a message of the service means: deliver it to package device, reply to the request
// id, or send a message, in this order and each unless unset.
type report struct {
	deliver bool
	pushed  bool // call delivered then
	send    *transport.Message
	id      uint32
	reply   *transport.Reply
}

// take turns a message into a delivery of desired properties or into a reply. Ignored are unknown
// types, messages that are not for this connection, and pushes and patches that are malformed.
func (t *twin) take(d *transport.Delivery) report {
	correlation, ok := nextwire.ParseID(d.Msg.CorrelationID)
	if !ok {
		return report{}
	}
	switch typ := typeOf(d.Msg); {
	case correlation == t.nonce && typ == nextwire.TypeTwinPush:
		var m nextwire.TwinPush
		if nextwire.Decode(d.Msg.Body, &m) == nil {
			return t.push(&m, d)
		}
	case correlation == t.nonce && typ == nextwire.TypeDesiredPatch:
		var m nextwire.DesiredPatch
		if nextwire.Decode(d.Msg.Body, &m) == nil {
			t.desired = max(t.desired, m.Version)
			return change(m.Version, m.Payload, d)
		}
	case bytes.Equal(correlation[:correlationOp], t.random[:]):
		if id := binary.BigEndian.Uint32(correlation[correlationID:]); mqttwire.TwinID(uint64(id)) {
			return t.answered(id, typ, correlation[correlationOp], d.Msg.Body)
		}
	}
	return report{}
}

// push takes over pushed sections.
func (t *twin) push(m *nextwire.TwinPush, d *transport.Delivery) report {
	if m.Reported != nil {
		t.reported = m.Reported.Version
	}
	if m.Desired == nil {
		return report{}
	}
	d.Full, t.desired = true, m.Desired.Version
	r := change(m.Desired.Version, m.Desired.Payload, d)
	r.pushed = t.pushing
	return r
}

// delivered records that the client has what the service pushed. A read that waited for it learns
// that: it has the id, 0 for none.
func (t *twin) delivered() (id uint32, reply transport.Reply) {
	id = t.held
	t.pushing, t.held = false, 0
	if id == 0 {
		t.pushed = t.desired
	}
	return id, transport.Reply{Version: version(t.desired)}
}

// change makes d a delivery of desired properties. Without a payload device reads them.
func change(newest uint64, payload []byte, d *transport.Delivery) report {
	d.Kind, d.Ref, d.Version = transport.FeatureDesired, nil, version(newest)
	d.Msg.Body = appendVersioned(nil, payload, newest)
	return report{deliver: true}
}

var (
	errUnreadable = operr.Violation("the service's answer is unreadable")
	errWrongType  = operr.Violation("the service's answer has the type of another one")
)

// answered takes an answer. A patch on no condition is sent again if the version was another one.
func (t *twin) answered(id uint32, typ string, op byte, body []byte) report {
	if op >= opPatch && (id != t.patch.id || op != opPatch+t.patch.tries) {
		return report{} // to an earlier try
	}
	reply := t.answer(typ, op, body)
	if op >= opPatch {
		if transport.KindOf(reply.Err) == transport.Conflict && t.patch.tries < maxTries {
			return report{send: t.tryPatch()}
		}
		t.patch = patch{}
	}
	return report{id: id, reply: &reply}
}

// answer returns the reply to a request.
func (t *twin) answer(typ string, op byte, body []byte) transport.Reply {
	get := op == opGet || op == opGetDesired
	switch {
	case get && typ == nextwire.TypeGetResponse:
		var m nextwire.GetResponse
		if nextwire.Decode(body, &m) != nil {
			return refused(transport.OpTwinGet, transport.Protocol, errUnreadable)
		}
		return t.document(&m, op)
	case get:
		return refused(transport.OpTwinGet, transport.Protocol, errWrongType)
	case typ == nextwire.TypePatchResponse:
		var m nextwire.PatchResponse
		if nextwire.Decode(body, &m) == nil {
			return t.patched(&m)
		}
	}
	cause := errWrongType
	if typ == nextwire.TypePatchResponse {
		cause = errUnreadable
	}
	r := refused(transport.OpTwinPatch, transport.Protocol, cause)
	r.Err = operr.OutcomeUnknown(transport.Find(r.Err))
	return r
}

// document makes the document of a classic hub, which package device reads. Without the desired
// properties the client has them.
func (t *twin) document(m *nextwire.GetResponse, op byte) transport.Reply {
	t.desired, t.reported = max(t.desired, m.DesiredVersion), m.ReportedVersion
	switch {
	case op == opGetDesired && m.Desired == nil:
		return transport.Reply{Version: version(m.DesiredVersion)}
	case op == opGetDesired:
		m.Reported = []byte("{}")
	case m.Desired == nil || m.Reported == nil:
		return refused(transport.OpTwinGet, transport.Protocol, errUnreadable)
	}
	body := appendVersioned([]byte(`{"desired":`), m.Desired, m.DesiredVersion)
	body = appendVersioned(append(body, `,"reported":`...), m.Reported, m.ReportedVersion)
	return transport.Reply{Status: 200, Version: version(m.DesiredVersion), Body: append(body, '}')}
}

// patchResults are the outcomes of a patch. Others are Unknown.
var patchResults = [...]struct {
	kind  transport.Kind
	cause error
}{
	nextwire.PatchVersionMismatch: {transport.Conflict, errors.New("the reported properties have another version")},
	nextwire.PatchPayloadInvalid:  {transport.Invalid, errors.New("the service takes no such patch")},
	nextwire.PatchPayloadTooLarge: {transport.TooLarge, errors.New("the service takes no patch of that size")},
	nextwire.PatchInternalError:   {transport.Unavailable, errors.New("the service failed")},
}

// patched is the reply to a patch.
func (t *twin) patched(m *nextwire.PatchResponse) transport.Reply {
	if m.Version != 0 {
		t.reported = m.Version
	}
	if m.Result == nextwire.PatchOK {
		return transport.Reply{Status: 204, Version: version(m.Version)}
	}
	kind, cause := transport.Unknown, error(nil)
	if m.Result > 0 && int(m.Result) < len(patchResults) {
		kind, cause = patchResults[m.Result].kind, patchResults[m.Result].cause
	}
	if cause == nil {
		cause = errors.New("the service answered with result " + strconv.Itoa(int(m.Result)) + ", which is not defined")
	}
	r := refused(transport.OpTwinPatch, kind, cause)
	r.Version = version(m.Version)
	return r
}

func refused(op transport.Op, kind transport.Kind, cause error) transport.Reply {
	return transport.Reply{Err: mqttwire.Refused(op, kind, cause)}
}

// version is a version as package transport has it.
func version(v uint64) int64 { return int64(min(v, 1<<63-1)) }

// appendVersioned appends properties with "$version" in them, as a classic hub sends them. Text
// that is no JSON object is appended as it is.
func appendVersioned(dst, properties []byte, v uint64) []byte {
	if !jsonscan.IsObject(properties) {
		return append(dst, properties...)
	}
	text := bytes.TrimSpace(properties)
	members := bytes.TrimSpace(text[1 : len(text)-1])
	dst = append(append(dst, '{'), members...)
	if len(members) > 0 {
		dst = append(dst, ',')
	}
	return append(strconv.AppendUint(append(dst, `"$version":`...), v, 10), '}')
}
