package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"strconv"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// sender is one device and its messages. Its own goroutine uses it, no other.
type sender struct {
	client  *device.Client
	prefix  string // of the messages' ids; it differs in each run
	size    int
	made    int
	pending []*sent // in the order of sending
}

// sent is a message and its result.
type sent struct {
	message transport.Message
	receipt device.Receipt
}

func newSender(client *device.Client, id string, size int) *sender {
	return &sender{client: client, prefix: id + "-" + rand.Text()[:8] + "-", size: size}
}

// enqueue puts the next message into the queue. Its body begins with its id, so that no two bodies
// are the same.
func (d *sender) enqueue(ctx context.Context) error {
	d.made++
	id := d.prefix + strconv.Itoa(d.made)
	body := bytes.Repeat([]byte{'.'}, d.size)
	copy(body, id)
	m := &sent{message: transport.Message{ID: id, Body: body}}
	if err := d.client.Enqueue(ctx, &m.message, &m.receipt); err != nil {
		return err
	}
	d.pending = append(d.pending, m)
	return nil
}

// settle enters the results that are there in the ledger, up to the first one that is missing. all:
// the client is closed, so every message has its result.
func (d *sender) settle(book *ledger, all bool) {
	for len(d.pending) > 0 && (all || d.pending[0].receipt.Ready()) {
		m := d.pending[0]
		d.pending = d.pending[1:]
		book.settled(m.message.ID, m.receipt.Wait(context.Background()))
	}
}
