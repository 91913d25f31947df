package amqpfront

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// methodLinks is the facility of method links.
type methodLinks struct{ front *Front }

func (methodLinks) joined(*pair) {}
func (methodLinks) parted(*pair) {}

// ask handles an answer. The id may be a uuid or its text form, as in the request.
func (m methodLinks) ask(p *pair, answer *wire.Message) *wire.Error {
	h := m.front.hub
	var correlation any
	if answer.Properties != nil {
		correlation = answer.Properties.CorrelationID
	}
	if correlation == nil {
		return wire.Errorf(wire.InvalidField, "answer without a correlation id")
	}
	value, _ := answer.ApplicationProperties.Get("IoThub-status")
	status, ok := wire.Whole(value)
	if !ok || status < math.MinInt32 || status > math.MaxInt32 {
		return wire.Errorf(wire.InvalidField, "answer to a method without a whole number as IoThub-status")
	}
	a := hubdata.MethodAnswer{
		DeviceID: p.id.Device, ModuleID: p.id.Module, RequestID: strings.ToLower(idText(correlation)),
		MethodResult: hubdata.MethodResult{Status: int(status), Payload: answer.Body()}, Protocol: hubdata.AMQP,
	}
	if !h.CutOnAnswer(p.conn.c, a) {
		h.Answered(p.conn.c, a)
	}
	return nil
}

// A methodTarget is a client that has both links for methods.
type methodTarget struct{ pair *pair }

func (t methodTarget) Client() *hub.Conn        { return t.pair.conn.c }
func (methodTarget) Protocol() hubdata.Protocol { return hubdata.AMQP }

// NewID returns a uuid of version 4, as some clients require. With a seed, the id is derived from
// it.
func (t methodTarget) NewID(n uint64) string {
	var id [16]byte
	if seed := t.pair.conn.hub.Seed; seed == 0 {
		rand.Read(id[:]) // never fails
	} else {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], seed)
		sum := sha256.Sum256(fmt.Appendf(b[:], "method %d", n))
		copy(id[:], sum[:])
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return wire.UUID(id).String()
}

func (methodTarget) OtherID(rid string) string { return otherID(uuidOf(rid)).(wire.UUID).String() }

// uuidOf parses the result of NewID.
func uuidOf(rid string) (id wire.UUID) {
	hex.Decode(id[:], []byte(strings.ReplaceAll(rid, "-", "")))
	return id
}

// Request sends a request with one data section.
func (methodTarget) Asks() bool { return false }

func (t methodTarget) Request(r hub.MethodRequest) bool {
	return t.pair.answer(&wire.Message{
		Properties:            &wire.Properties{CorrelationID: uuidOf(r.ID)},
		ApplicationProperties: wire.Map{{Key: "IoThub-methodname", Value: r.Name}},
		Data:                  [][]byte{r.Payload},
	})
}
