package testbroker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// methodLinks is what stands behind the links for methods.
type methodLinks struct{ front *amqpFront }

func (methodLinks) joined(*amqpPair) {}
func (methodLinks) parted(*amqpPair) {}

// ask takes an answer. The id may be a uuid or its text, whatever the request had.
func (m methodLinks) ask(p *amqpPair, answer *wire.Message) *wire.Error {
	h := m.front.hub
	var correlation any
	if answer.Properties != nil {
		correlation = answer.Properties.CorrelationID
	}
	if correlation == nil {
		return wire.Errorf(wire.InvalidField, "answer without a correlation id")
	}
	value, _ := answer.ApplicationProperties.Get("IoThub-status")
	status, ok := wholeNumber(value)
	if !ok || status < math.MinInt32 || status > math.MaxInt32 {
		return wire.Errorf(wire.InvalidField, "answer to a method without a whole number as IoThub-status")
	}
	a := MethodAnswer{
		DeviceID: p.id.device, ModuleID: p.id.module, RequestID: strings.ToLower(idText(correlation)),
		MethodResult: MethodResult{int(status), answer.Body()}, Protocol: AMQP,
	}
	if !h.cutOnAnswer(p.conn.c, a) {
		h.answered(p.conn.c, a)
	}
	return nil
}

// An amqpTarget is a client that has both links for methods.
type amqpTarget struct{ pair *amqpPair }

func (t amqpTarget) client() *conn    { return t.pair.conn.c }
func (amqpTarget) protocol() Protocol { return AMQP }

// newID makes a uuid of version 4, which some clients insist on. With a seed it follows from that.
func (t amqpTarget) newID(n uint64) string {
	var id [16]byte
	if seed := t.pair.conn.hub.seed; seed == 0 {
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

func (amqpTarget) otherID(rid string) string { return otherID(uuidOf(rid)).(wire.UUID).String() }

// uuidOf reads what newID has made.
func uuidOf(rid string) (id wire.UUID) {
	hex.Decode(id[:], []byte(strings.ReplaceAll(rid, "-", "")))
	return id
}

// request sends a request with one data section.
func (t amqpTarget) request(rid, name string, payload []byte) bool {
	return t.pair.answer(&wire.Message{
		Properties:            &wire.Properties{CorrelationID: uuidOf(rid)},
		ApplicationProperties: wire.Map{{Key: "IoThub-methodname", Value: name}},
		Data:                  [][]byte{payload},
	})
}
