package mqtt_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// Large packets that follow each other are read into one buffer. A small one frees it.
func TestLargePacketsShareABuffer(t *testing.T) {
	var in mqtt.Inbox
	large := mqtt.EncodePublish(mqtt.V311, &mqtt.PublishPacket{Topic: "t", Payload: make([]byte, 200_000)})
	var left []byte
	from := readerFunc(func(p []byte) (int, error) { // the last piece of a packet is small
		n := copy(p, left[:min(len(left), 40_000)])
		left = left[n:]
		return n, nil
	})
	read := func(p []byte) {
		left = p
		_, _, err := in.Packet(from, 1<<20, nil)
		require.NoError(t, err)
	}
	read(large)
	require.Zero(t, testing.AllocsPerRun(100, func() { read(large) }))
	read(mqtt.EncodePublish(mqtt.V311, &mqtt.PublishPacket{Topic: "t", Payload: make([]byte, 1000)}))
	require.LessOrEqual(t, len(in.Room()), 16<<10)
	in.Add(0)
	read(large)
	read([]byte{0xc0, 0})
	require.Len(t, in.Room(), 512, "after a ping")
}

// BenchmarkLargePackets reads packets of 255 KiB that arrive in pieces of 64 KiB.
func BenchmarkLargePackets(b *testing.B) {
	large := mqtt.EncodePublish(mqtt.V311, &mqtt.PublishPacket{Topic: "t", Payload: make([]byte, 255<<10)})
	var in mqtt.Inbox
	var left bytes.Reader
	from := readerFunc(func(p []byte) (int, error) { return left.Read(p[:min(len(p), 64<<10)]) })
	b.ReportAllocs()
	b.SetBytes(int64(len(large)))
	for b.Loop() {
		left.Reset(large)
		if _, _, err := in.Packet(from, 1<<20, nil); err != nil {
			b.Fatal(err)
		}
	}
}
