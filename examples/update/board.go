package main

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/edsign"
	"github.com/hubline-iot/hubline/update/httprange"
)

// board is a microcontroller with flash, whose firmware is a function here.
type board struct {
	hub       *testbroker.Hub
	connect   string
	flash     *flashsim.Flash
	layout    update.Layout
	verify    func(signed, signature []byte) bool
	powerCuts int
}

// Sizes of the flash: two blocks for the state, and slots of 64 KB.
const (
	eraseBlock = 4096
	slotBlocks = 16
)

// newBoard returns a board as it leaves the factory, with firmware 1.
func newBoard(hub *testbroker.Hub, connect string, key crypto.PublicKey) (*board, error) {
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the key is not for Ed25519")
	}
	flash := flashsim.New((2+2*slotBlocks)*eraseBlock, 8, eraseBlock)
	b := &board{hub: hub, connect: connect, flash: flash, verify: edsign.Verifier(public), layout: update.Layout{
		Flash: flash, Slots: [2]update.Slot{{First: 2, Blocks: slotBlocks}, {First: 2 + slotBlocks, Blocks: slotBlocks}},
	}}
	first := newImage(1, true)
	_, err := flash.WriteAt(first, 2*eraseBlock)
	return b, errors.Join(err, update.Format(&b.layout, image(1, first)))
}

// run starts firmware after each reset until ctx ends.
func (b *board) run(ctx context.Context) error {
	for ctx.Err() == nil {
		slot, err := update.Boot(&b.layout, make([]byte, 256)) // the boot loader
		if err != nil {
			return err
		}
		head := make([]byte, 2)
		if _, err := b.flash.ReadAt(head, b.layout.Slots[slot].First*eraseBlock); err != nil {
			return err
		}
		fmt.Printf("board    starts firmware %d from slot %d\n", head[0], slot)
		err = b.firmware(ctx, head[1] == 1)
		if b.flash.Off() {
			fmt.Println("board    loses its power in the middle of a write")
			b.powerCuts++
			b.flash.Restore()
			continue
		}
		if err != nil && ctx.Err() == nil {
			fmt.Printf("board    is reset: %v\n", err)
		}
	}
	return nil
}

// watchdog is how long a firmware may take to connect. On a board it is longer, and a chip.
const watchdog = time.Second

// firmware is the program of every image. It returns for a reset.
func (b *board) firmware(ctx context.Context, works bool) error {
	u, err := update.Open(&update.Options{Layout: b.layout, Model: model, Verify: b.verify, OnStatus: b.cutPower,
		Policy: retrypolicy.ExponentialBackoffWithJitter{}})
	if err != nil {
		return err
	}
	creds, err := device.ParseConnectionString(b.connect)
	if err != nil {
		return err
	}
	dial := mqtt.Dialer(&netopt.Options{Plaintext: true, Dial: b.hub.Dial(testbroker.PortMQTT)})
	if !works {
		dial = func(context.Context, *transport.Credentials) (engine.Conn, error) {
			return nil, errors.New("the new driver finds no modem")
		}
	}
	client, err := device.New(creds, engine.New(dial, nil), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	orders := make(chan order, 1)
	err = client.HandleDesired(func(_ context.Context, d device.Desired) {
		var desired struct{ Update *order }
		if json.Unmarshal(d.JSON, &desired) == nil && desired.Update != nil {
			orders <- *desired.Update
		}
	})
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, watchdog)
	defer cancel()
	if err := client.Open(opening); err != nil {
		return err
	}
	if err := client.Send(opening, &transport.Message{Body: []byte(`{"started":true}`)}); err != nil {
		return err
	}
	if err := errors.Join(u.Confirm(), report(ctx, client, u.Status())); err != nil { // it works
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-orders:
			if reset, err := b.obey(ctx, client, u, o); reset || err != nil {
				return err
			}
		}
	}
}

// obey downloads the update of an order and reports how that went. reset is true if the board must
// start the new image.
func (b *board) obey(ctx context.Context, client *device.Client, u *update.Updater, o order) (reset bool, err error) {
	m, _, _, err := update.ParseManifest([]byte(o.Manifest))
	if err == nil && m.Version == u.Status().Running {
		return false, nil // done before
	}
	dial := func(ctx context.Context) (httprange.Conn, error) {
		return b.hub.Dial(testbroker.PortHTTP)(ctx, "tcp", storageHost)
	}
	source, err := httprange.New(dial, &httprange.Options{Host: storageHost, Path: o.Path})
	if err != nil {
		return false, err
	}
	defer source.Close()
	err = u.Download(ctx, []byte(o.Manifest), source)
	if b.flash.Off() || ctx.Err() != nil {
		return true, err
	}
	fmt.Printf("board    has downloaded: %v\n", err)
	status := u.Status()
	status.Err = err
	return err == nil, report(ctx, client, status)
}

// report sends the status as a reported property.
func report(ctx context.Context, client *device.Client, s update.Status) error {
	patch := append(s.AppendJSON([]byte(`{"update":`)), '}')
	_, err := client.PatchReported(ctx, patch)
	return err
}

// cutPower cuts the power once, in the middle of the first download.
func (b *board) cutPower(s update.Status) {
	if s.Err != nil {
		fmt.Printf("board    has %d of %d bytes: %v\n", s.Done, s.Size, s.Err)
	}
	if s.Phase == update.PhaseDownloading && s.Done == 6*eraseBlock && b.powerCuts == 0 {
		b.flash.CutAt(100, flashsim.Bits, 1)
	}
}
