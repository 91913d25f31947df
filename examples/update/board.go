package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/handler"
	"github.com/hubline-iot/hubline/update/httprange"
)

// board is a microcontroller with flash, whose firmware is a function here.
type board struct {
	cloud     *setup.UpdateCloud
	flash     *flashsim.Flash
	layout    update.Layout
	off       func() // ends the firmware
	powerCuts int
	running   byte
	started   map[byte]bool
}

// The flash: two blocks for the state, slots of 64 KB, and eight blocks for the agent.
const (
	eraseBlock = 4096
	slotBlocks = 16
	agentFirst = 2 + 2*slotBlocks
	blocks     = agentFirst + 8
)

// newBoard returns a board as it leaves the factory, with firmware 1.
func newBoard(c *setup.UpdateCloud) (*board, error) {
	flash := flashsim.New(blocks*eraseBlock, 8, eraseBlock)
	b := &board{cloud: c, flash: flash, started: map[byte]bool{}, layout: update.Layout{
		Flash: flash, Slots: [2]update.Slot{{First: 2, Blocks: slotBlocks}, {First: 2 + slotBlocks, Blocks: slotBlocks}},
	}}
	first := newImage(1, true)
	_, err := flash.WriteAt(first, 2*eraseBlock)
	return b, errors.Join(err, update.Format(&b.layout,
		update.Image{Version: 1, Size: int64(len(first)), SHA256: sha256.Sum256(first)}))
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
		b.running = head[0]
		b.started[head[0]] = true
		fmt.Printf("board    starts firmware %d from slot %d\n", head[0], slot)
		err = b.firmware(ctx, head[0], head[1] == 1)
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

// firmware is the program of every image. It returns for a reset.
func (b *board) firmware(ctx context.Context, number byte, works bool) error {
	if !works {
		return errors.New("it crashes at its start")
	}
	ctx, b.off = context.WithCancel(ctx)
	defer b.off()
	registrar, err := b.cloud.Registrar()
	if err != nil {
		return err
	}
	service, err := dpsupdate.New(registrar, nil)
	if err != nil {
		return err
	}
	keys, err := adusign.NewKeys(&adusign.KeysOptions{Roots: b.cloud.Updates.Roots()})
	if err != nil {
		return err
	}
	u, err := update.Open(&update.Options{Layout: b.layout, Version: uint32(number), OnStatus: b.cutPower})
	if err != nil {
		return err
	}
	state, err := update.NewStore(b.flash, update.Slot{First: agentFirst, Blocks: blocks - agentFirst})
	if err != nil {
		return err
	}
	a, err := agent.New(&agent.Options{
		Service: service,
		Handlers: map[string]agent.Handler{setup.UpdateHandler: &handler.Slots{
			Updater: u,
			Healthy: func(ctx context.Context) error { return b.greet(ctx, registrar) },
		}},
		Verify:   keys.Verify,
		RootKeys: keys.Update,
		Fetch:    &httprange.Fetcher{Dial: b.dial},
		Store:    state,
		Properties: agent.Properties{
			{Name: "manufacturer", Value: setup.UpdateProvider}, {Name: "model", Value: setup.UpdateModel}},
		Installed: func() agent.UpdateID {
			return agent.UpdateID{Provider: setup.UpdateProvider, Name: setup.UpdateModel, Version: fmt.Sprintf("%d.0", number)}
		},
		Interval: 100 * time.Millisecond, Spread: -1, // a fleet asks every few hours
		Policy: retrypolicy.ExponentialBackoffWithJitter{},
		OnStatus: func(s agent.Status) {
			if s.Err != nil {
				fmt.Printf("board    tries again: %v\n", s.Err)
			}
		},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// dial connects to the server of the files.
func (b *board) dial(ctx context.Context, host string, _ bool) (httprange.Conn, error) {
	network := b.cloud.Network()
	c, err := network.Dial(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return tls.Client(c, network.TLS), nil
}

// greet sends a message to the board's hub. Firmware that can do that works.
func (b *board) greet(ctx context.Context, registrar *provisioning.Client) error {
	assignment, err := registrar.Register(ctx)
	if err != nil {
		return err
	}
	network := netopt.Options{Dial: b.cloud.Hub.Dial(testbroker.PortMQTTS), TLS: b.cloud.Hub.ClientTLS()}
	client, err := device.New(registrar.Credentials(assignment), mqtt.New(&mqtt.Options{Network: network}), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Open(ctx); err != nil {
		return err
	}
	return client.Send(ctx, &transport.Message{Body: []byte(`{"started":true}`)})
}

// cutPower cuts the power once, in the middle of the first download.
func (b *board) cutPower(s update.Status) {
	if b.flash.Off() {
		b.off()
	}
	if s.Phase == update.PhaseDownloading && s.Done == 6*eraseBlock && b.powerCuts == 0 {
		b.flash.CutAt(100, flashsim.Bits, 1)
	}
}
