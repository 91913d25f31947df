// Command update is a board that replaces its firmware when its twin says so.
//
// Everything is in this process: the flash with two slots, the boot loader, the hub and its
// storage. The back end publishes three updates:
//
//	firmware 2  works. Its download meets busy storage, cut and garbled answers and a power cut.
//	firmware 3  does not connect. The boot loader goes back to firmware 2.
//	firmware 4  is signed with a wrong key. The board refuses it.
//
// The exit status is 0 only if the twin reports each of these, and firmware 2 runs at the end.
//
//	go run ./examples/update
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

const deviceID = "board-7"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "update:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	hub, err := testbroker.New(nil)
	if err != nil {
		return err
	}
	defer hub.Close()
	dev, err := hub.AddDevice(deviceID)
	if err != nil {
		return err
	}
	p, err := newPublisher(ctx, hub)
	if err != nil {
		return err
	}
	b, err := newBoard(hub, dev.ConnectionString(), p.key.Public())
	if err != nil {
		return err
	}
	powered, off := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.run(powered) }() // ends with powered, or with an error
	backEnd := make(chan error, 1)
	go func() { backEnd <- publishAll(ctx, hub, p) }() // ends with ctx
	select {
	case err = <-backEnd:
		off()
		err = errors.Join(err, <-ended)
	case err = <-ended:
		off()
		cancel()
		<-backEnd
	}
	if err == nil && b.powerCuts != 1 {
		err = fmt.Errorf("%d power cuts, want 1", b.powerCuts)
	}
	return err
}

// faults are those of the first download. After counts the requests to storage.
var faults = []fault.Fault{
	{Kind: fault.AnswerStatus, Route: fault.RouteStorage, Statuses: []int{503}, Blob: fault.GetBlob},
	{Kind: fault.DropDuringAnswer, Route: fault.RouteStorage, Blob: fault.GetBlob, After: 1},
	{Kind: fault.ResetAfterRequest, Route: fault.RouteStorage, Blob: fault.GetBlob, After: 3},
	{Kind: fault.GarbageAnswer, Route: fault.RouteStorage, Blob: fault.GetBlob, After: 3},
}

// publishAll is the back end.
func publishAll(ctx context.Context, hub *testbroker.Hub, p *publisher) error {
	var played []*testbroker.Injected
	for _, f := range faults {
		played = append(played, hub.Inject(f))
	}
	const back = `"next":3,"outcome":"rolledBack","percent":100,"phase":"idle","running":2,"slot":1}}`
	for _, u := range []struct {
		version uint32
		works   bool
		forged  bool
		want    string
	}{
		{2, true, false, `"next":1,"outcome":"updated","percent":0,"phase":"idle","running":2,"slot":1}}`},
		{3, false, false, `"error":"conflict",` + back},
		{4, true, true, `"error":"certificate not trusted",` + back},
	} {
		desired, err := p.publish(ctx, u.version, u.works, u.forged)
		if err != nil {
			return err
		}
		fmt.Printf("back end publishes firmware %d\n", u.version)
		if _, err := hub.PatchDesired(deviceID, desired); err != nil {
			return err
		}
		last := ""
		err = hub.WaitReported(ctx, deviceID, func(t hubdata.Twin) bool {
			last = string(t.Reported)
			return last == `{"update":{`+u.want
		})
		if err != nil {
			return fmt.Errorf("the twin reports %s, want %s: %w", last, u.want, err)
		}
		fmt.Printf("back end sees %s\n", last)
	}
	for i, f := range played {
		if f.Fired() == 0 {
			return fmt.Errorf("fault %d did not happen", i)
		}
	}
	return nil
}
