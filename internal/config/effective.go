package config

import "cmp"

// Burst returns the most visitors that the room admits at one moment: admission.burst, or max(1, rate).
func (r *Room) Burst() Rate {
	if r.Admission.Burst != nil {
		return *r.Admission.Burst
	}
	return max(1000, r.Admission.Rate)
}

// MostBurst returns the most visitors that all rooms of the budget together admit at one moment: burst, or max(1, rate).
func (b *Budget) MostBurst() Rate {
	if b.Burst > 0 {
		return b.Burst
	}
	return max(1000, b.Rate)
}

// BudgetOf returns the budget of a room's origin and the weights of all rooms that share it; nil without a budget.
func (c *Config) BudgetOf(r *Room) (b *Budget, weights Rate) {
	o := c.OriginOf(r)
	if o == nil || o.Budget.Rate == 0 {
		return nil, 0
	}
	for i := range c.Rooms {
		if c.OriginOf(&c.Rooms[i]) == o {
			weights += c.Rooms[i].Weight
		}
	}
	return &o.Budget, weights
}

// OnStoreErrorOf returns the on_store_error in force for a room: its own, or the gateway's.
func (c *Config) OnStoreErrorOf(r *Room) string {
	if r.OnStoreError != "" {
		return r.OnStoreError
	}
	return c.OnStoreError
}

// OriginOf returns the origin of a room: its own, or DefaultOriginID. It is nil only in a configuration that Validate refuses.
func (c *Config) OriginOf(r *Room) *Origin {
	return c.originByID(cmp.Or(r.Origin, c.DefaultOriginID()))
}

// DefaultOriginID returns default_origin, or the first of origins.
func (c *Config) DefaultOriginID() string {
	if c.DefaultOrigin == "" && len(c.Origins) > 0 {
		return c.Origins[0].ID
	}
	return c.DefaultOrigin
}

func (c *Config) originByID(id string) *Origin {
	for i := range c.Origins {
		if c.Origins[i].ID == id {
			return &c.Origins[i]
		}
	}
	return nil
}
