package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// healthTime bounds the question of -health, so that a supervisor gets an answer.
const healthTime = 5 * time.Second

// A healthAnswer is the answer of GET /health.
type healthAnswer struct {
	Status string `json:"status"` // "healthy": a hub that is ending does not answer
}

func (c *control) health(r *call) (any, *refusal) { return healthAnswer{"healthy"}, r.query() }

// askHealth asks a running testhub whether it serves, for -health.
func askHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	fail := func(err error) error {
		return fmt.Errorf("flag -health: %w; give the address of the control API of a running testhub, such as "+
			"http://127.0.0.1:8880", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(url, "/")+"/health", nil)
	if err != nil {
		return fail(err)
	}
	client := &http.Client{Transport: &http.Transport{}} // no proxy, and no connection is kept
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	var a healthAnswer
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<10)).Decode(&a); err != nil || a.Status != "healthy" {
		return fail(fmt.Errorf("%s answers with %s", url, answer.Status))
	}
	return nil
}
