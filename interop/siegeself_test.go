package interop

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ledger finds each fault that it is to find.
func TestTheLedgerFindsFaults(t *testing.T) {
	l := newLedger("x", 5)
	for n := range 5 {
		l.queued(n)
	}
	for _, n := range []int{0, 2, 1, 3, 4} {
		l.sent(n, false)
	}
	l.acknowledged(0)
	l.ended(0, nil)
	l.acknowledged(1) // and does not arrive
	l.ended(1, nil)
	l.ended(2, nil) // neither acknowledged, nor does it arrive
	l.sent(3, false)
	l.ended(3, errors.New("refused"))
	l.ended(4, errUnanswered) // nor does this one
	for _, n := range []int{3, 0, 3} {
		l.arrived(n)
	}
	require.Equal(t, 2, l.missing())
	b := l.balance()
	b.gap = 0
	require.Equal(t, balance{
		arrived: 2, lostByBroker: 1, lostByClient: 2, doubled: 1, early: 1, errors: 1, falseErrors: 1, behind: 1,
		disorder: 1, unmarked: 1, resent: 1, said: "1 × refused",
	}, b)
}

// crossed records what a tap saw.
type crossed struct {
	out   []int
	marks []bool
	acks  []int
}

func (c *crossed) sent(n int, marked bool) {
	c.out, c.marks = append(c.out, n), append(c.marks, marked)
}
func (c *crossed) acknowledged(n int) { c.acks = append(c.acks, n) }

// publish1 is a PUBLISH with QoS 1 on topic "t".
func publish1(first byte, id byte, payload string) []byte {
	return append([]byte{first, byte(5 + len(payload)), 0, 1, 't', 0, id}, payload...)
}

// The tap sees packets however they are split, and the DUP flag.
func TestTheTapReadsMQTT(t *testing.T) {
	client, broker := net.Pipe()
	var saw crossed
	tap := tapMQTT(client, &saw)
	stream := append(publish1(0x32, 1, "#000007"), publish1(0x3a, 2, "#000008")...)
	stream = append(stream, publish1(0x30, 0, "#000009")...) // QoS 0 has no answer
	go func() {
		buf := make([]byte, 1)
		for range stream {
			_, _ = broker.Read(buf)
		}
		_, _ = broker.Write([]byte{0x40, 2, 0, 2, 0x40, 3, 0, 1, 0x80}) // the second is a refusal of MQTT 5
		_ = broker.Close()
	}()
	for i := range stream {
		_, err := tap.Write(stream[i : i+1])
		require.NoError(t, err)
	}
	buf := make([]byte, 3)
	for {
		if _, err := tap.Read(buf); err != nil {
			break
		}
	}
	require.Equal(t, crossed{out: []int{7, 8}, marks: []bool{false, true}, acks: []int{8}}, saw)
}

// The tap of AMQP finds numbers that are split over two writes.
func TestTheTapFindsNumbersInAMQP(t *testing.T) {
	client, broker := net.Pipe()
	defer broker.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			if _, err := broker.Read(buf); err != nil {
				return
			}
		}
	}()
	var saw crossed
	tap := tapAMQP(client, &saw)
	for _, part := range []string{"frame #000001 frame #00", "0002", " #000003#000004"} {
		_, err := tap.Write([]byte(part))
		require.NoError(t, err)
	}
	require.Equal(t, []int{1, 2, 3, 4}, saw.out)
}
