// Command update is a board that takes its firmware from an update service.
//
// Everything is in this process: the flash with two slots, the boot loader, a provisioning service
// with the update service behind it, and a hub. The back end publishes three updates:
//
//	firmware 2  works. Its download meets a busy server, a cut answer and a power cut.
//	firmware 3  crashes at its start. The boot loader goes back to firmware 2.
//	firmware 4  has a wrong signature. The board does not even download it.
//
// The exit status is 0 only if the service has exactly one final report about each of these, and
// firmware 2 runs at the end.
//
//	go run ./examples/update
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "update:", err)
		os.Exit(1)
	}
}

func run() error {
	var b *board
	err := setup.RunUpdates(func(ctx context.Context, cloud *setup.UpdateCloud) (err error) {
		if b, err = newBoard(cloud); err != nil {
			return err
		}
		return b.run(ctx)
	}, publishAll)
	if err == nil && (b.powerCuts != 1 || b.running != 2 || b.started[4]) {
		err = fmt.Errorf("%d power cuts, firmware %d runs, started was %v; want 1, 2, and never 4",
			b.powerCuts, b.running, b.started)
	}
	return err
}

// publishAll is the back end.
func publishAll(ctx context.Context, cloud *setup.UpdateCloud) error {
	var played []*testbroker.Injected
	inject := func(f fault.Fault) { played = append(played, cloud.DPS.Inject(f)) }
	inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUpdateFile, Statuses: []int{503}})
	inject(fault.Fault{Kind: fault.DropDuringAnswer, Route: fault.RouteUpdateFile, After: 1})
	if err := cloud.Install(ctx, 2, newImage(2, true), updatedata.OutcomeSucceeded, 2); err != nil {
		return err
	}
	if err := cloud.Install(ctx, 3, newImage(3, false), updatedata.OutcomeFailed, 2); err != nil {
		return err
	}
	inject(fault.Fault{Kind: fault.WrongOffer, Text: "signature"})
	if err := cloud.Install(ctx, 4, newImage(4, true), updatedata.OutcomeFailed, 2); err != nil {
		return err
	}
	for i, f := range played {
		if f.Fired() == 0 {
			return fmt.Errorf("fault %d did not happen", i)
		}
	}
	return nil
}

// newImage returns a firmware: its first byte is its number, its second one says whether it works.
func newImage(number byte, works bool) []byte {
	b := make([]byte, 50_000)
	rand.Read(b) // never fails
	b[0], b[1] = number, 0
	if works {
		b[1] = 1
	}
	return b
}
