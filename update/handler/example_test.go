package handler_test

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/handler"
)

func ExampleSlots() {
	flash := flashsim.New(10*4096, 8, 4096) // on a board: machine.Flash
	layout := update.Layout{Flash: flash, Slots: [2]update.Slot{{First: 2, Blocks: 4}, {First: 6, Blocks: 4}}}
	factory := []byte("firmware")
	if _, err := flash.WriteAt(factory, 2*4096); err != nil {
		fmt.Println(err)
		return
	}
	running := update.Image{Version: 6, Size: int64(len(factory)), SHA256: sha256.Sum256(factory)}
	if err := update.Format(&layout, running); err != nil { // once, in the factory
		fmt.Println(err)
		return
	}

	u, err := update.Open(&update.Options{Layout: layout, Version: 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	slots := &handler.Slots{Updater: u, Healthy: func(context.Context) error { return nil }}

	// The agent asks this first, for each step.
	for _, number := range []string{"6", "7"} {
		w := &agent.Work{Step: agent.Step{InstalledCriteria: number}, Files: make([]agent.File, 1)}
		done, err := slots.Installed(context.Background(), w)
		fmt.Println("image", number, "is installed:", done, err)
	}
	// Output:
	// image 6 is installed: true <nil>
	// image 7 is installed: false <nil>
}
