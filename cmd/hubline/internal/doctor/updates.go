package doctor

import (
	"context"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

// updating is the registration of a device that says which updates are for it.
func updating(p *Probe) []subject {
	if len(p.Options.UpdateProperties) == 0 {
		return nil
	}
	return registering(p)
}

// runUpdates asks for a software update. It reports nothing to the service, so the offer stays.
func runUpdates(ctx context.Context, p *Probe, s subject) []Row {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	registrar, err := p.Target.Registrar(&provisioning.Options{})
	if err != nil {
		return bad(err)
	}
	defer registrar.CloseIdle()
	service, err := dpsupdate.New(registrar, nil)
	if err != nil {
		return bad(err)
	}
	answer, err := service.Check(ctx, &agent.Query{Profile: 1, Properties: p.Options.UpdateProperties})
	switch {
	case err != nil:
		return p.otherwise(ctx, bad(err), s.site, speaksHTTP)
	case answer.Offer == nil:
		return []Row{{Mark: OK, Figure: "no update is offered", Hint: "the provisioning service answers about updates"}}
	}
	return []Row{{Mark: OK, Figure: "workflow " + answer.Offer.WorkflowID + " is offered",
		Hint: "hubline update check verifies it"}}
}
