package dpscert

import (
	"slices"

	"github.com/hubline-iot/hubline/transport"
)

// The ids of the renewal's requests. Package device counts its own from 1.
const (
	subscribeID = 1<<32 - 1 - iota
	issueID
)

const (
	// maxAnswers is how many answers of the hub may wait.
	maxAnswers = 4
	// maxAnswer bounds the body of an answer: 16 certificates of 4 KB in base64.
	maxAnswer = 96 << 10
	// maxRequestID bounds the id in an answer.
	maxRequestID = 64
)

// answer is the hub's answer to a request for a certificate.
type answer struct {
	status string
	id     string
	ref    []byte // to acknowledge it
	body   []byte // nil if it is too large
}

// reply is the reply of the session below to the request with this id.
type reply struct {
	id  uint32
	err error
}

// sink passes on what is not for the renewal.
type sink struct {
	transport.Sink
	s *session
}

// Reply implements transport.Sink.
func (k *sink) Reply(id uint32, r transport.Reply) {
	if id != subscribeID && id != issueID {
		k.Sink.Reply(id, r)
		return
	}
	select {
	case k.s.replies <- reply{id, r.Err}:
	default: // the renewal does not wait for it
	}
}

// Deliver implements transport.Sink. An answer for which there is no room is not acknowledged, so
// the hub sends it again over the next connection.
func (k *sink) Deliver(d *transport.Delivery) bool {
	if d.Kind != transport.FeatureCertificates {
		return k.Sink.Deliver(d)
	}
	if d.Msg == nil || len(d.Msg.CorrelationID) > maxRequestID {
		return false
	}
	a := answer{status: string(d.Name), id: d.Msg.CorrelationID, ref: slices.Clone(d.Ref)}
	if len(d.Msg.Body) <= maxAnswer {
		a.body = append([]byte{}, d.Msg.Body...)
	}
	select {
	case k.s.answers <- a:
		return true
	default:
		return false
	}
}
