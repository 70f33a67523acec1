package cloudflare

import (
	"bytes"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/anteroom/anteroom/internal/settings"
)

// configuration is the part of the gateway's configuration that an import writes.
type configuration struct {
	Cookies *cookies `yaml:"cookies,omitempty"`
	Origins []origin `yaml:"origins"`
	Rooms   []room   `yaml:"rooms"`
}

type cookies struct {
	SameSite string `yaml:"same_site"`
}

type origin struct {
	ID      string   `yaml:"id"`
	Servers []string `yaml:"servers,flow"`
}

type room struct {
	ID           string    `yaml:"id"`
	Hosts        []string  `yaml:"hosts,flow"`
	Paths        []string  `yaml:"paths,flow"`
	Enabled      *bool     `yaml:"enabled,omitempty"`
	Admission    admission `yaml:"admission"`
	Queue        queue     `yaml:"queue"`
	Session      session   `yaml:"session"`
	Bypass       []bypass  `yaml:"bypass,omitempty"`
	Page         page      `yaml:"page"`
	Compat       string    `yaml:"compat,omitempty"`
	CompatStatus int       `yaml:"compat_status,omitempty"`
	Events       []event   `yaml:"events,omitempty"`
}

type admission struct {
	Rate      rate  `yaml:"rate"`
	MaxActive int64 `yaml:"max_active"`
}

type queue struct {
	Method         string `yaml:"method"`
	DrawSecretFile string `yaml:"draw_secret_file,omitempty"`
}

type session struct {
	TTL   minutes `yaml:"ttl"`
	Renew bool    `yaml:"renew"`
	Max   minutes `yaml:"max,omitempty"`
}

type bypass struct {
	Paths      []string `yaml:"paths,omitempty,flow"`
	Methods    []string `yaml:"methods,omitempty,flow"`
	IPs        []string `yaml:"ips,omitempty,flow"`
	UserAgents []string `yaml:"user_agents,omitempty,flow"`
}

type page struct {
	Status    int64    `yaml:"status"`
	Languages []string `yaml:"languages,omitempty,flow"`
}

type event struct {
	Name       string `yaml:"name"`
	StartsAt   string `yaml:"starts_at"`
	EndsAt     string `yaml:"ends_at"`
	PrequeueAt string `yaml:"prequeue_at,omitempty"`
	Rate       rate   `yaml:"rate,omitempty"`
	Method     string `yaml:"method,omitempty"`

	begins, ends time.Time
}

// rate is in thousandths of a visitor per second.
type rate int64

// perSecond returns a number of visitors per minute as a rate, rounded down to thousandths of a visitor per second.
func perSecond(perMinute int64) rate { return rate(perMinute * 1000 / 60) }

func (r rate) String() string { return settings.Rate(r).String() }

// MarshalYAML returns a plain decimal: the gateway reads no exponents.
func (r rate) MarshalYAML() (any, error) {
	tag := "!!float"
	if r%1000 == 0 {
		tag = "!!int"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: r.String()}, nil
}

// minutes is a duration in minutes.
type minutes int64

// MarshalYAML returns the duration with its unit.
func (m minutes) MarshalYAML() (any, error) {
	return settings.FormatDuration(time.Duration(m) * time.Minute), nil
}

// YAML returns the configuration.
func (i *Import) YAML() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Imported from Cloudflare Waiting Room. Check it with: gateway check-config --config FILE\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&i.config); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}
