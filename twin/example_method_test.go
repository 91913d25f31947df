package twin_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/twin"
)

type blink struct {
	Times int `json:"times"`
}

// Validate makes the router refuse calls with a wrong number.
func (b blink) Validate() error {
	if b.Times < 1 || b.Times > 10 {
		return &twin.FieldError{Field: "times", Err: errors.New("give 1 to 10")}
	}
	return nil
}

type blinked struct {
	Total int `json:"total"`
}

func ExampleHandleMethod() {
	hub, client := exampleClient()
	defer hub.Close()
	defer client.Close()

	total := 0
	err := twin.HandleMethod(client, "blink", func(_ context.Context, in blink) (blinked, error) {
		if total += in.Times; total > 12 {
			return blinked{}, twin.MethodErrorf(409, "the lamp needs a rest after %d times", total)
		}
		return blinked{total}, nil
	}, &twin.MethodOptions{Limit: 1}) // one call at a time: total needs no lock
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	for _, call := range []hubdata.MethodCall{
		{Name: "blink", Payload: []byte(`{"times":5}`)},
		{Name: "blink", Payload: []byte(`{"times":"five"}`)},
		{Name: "blink", Payload: []byte(`{"times":50}`)},
		{Name: "blink", Payload: []byte(`{"tims":5}`)},
		{Name: "blink", Payload: []byte(`{"times":8}`)},
		{Name: "shine"},
	} {
		result, err := hub.CallMethod(ctx, "dev-1", call)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s\n", result.Status, result.Payload)
	}
	// Output:
	// 200 {"total":5}
	// 400 {"message":"field times: want a whole number in its range, got a string","field":"times"}
	// 400 {"message":"field times: give 1 to 10","field":"times"}
	// 400 {"message":"field tims: there is no such field","field":"tims"}
	// 409 {"message":"the lamp needs a rest after 13 times"}
	// 404 {"message":"the device has no such method"}
}
