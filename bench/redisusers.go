package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/redislock"
	"github.com/holdfast-go/holdfast/redislock/goredis"
)

// The kinds of Holdfast on a client that the program has anyway.
const (
	userRueidis = bench.Holdfast + "-rueidis"
	userGoRedis = bench.Holdfast + "-goredis"
)

// openOnRueidis is Holdfast on a client of rueidis, with its defaults except those
// that redislock.New recommends.
func openOnRueidis(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Server}, ForceSingleClient: true, DisableRetry: true})
	if err != nil {
		return nil, err
	}
	d, err := redislock.New(c, nil)
	return onUsers(d, err, s, closing(c))
}

// openOnGoRedis is Holdfast on a client of go-redis, with its defaults, as the peers
// have them.
func openOnGoRedis(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c := redis.NewClient(&redis.Options{Addr: s.Server})
	d, err := goredis.New(c, nil)
	return onUsers(d, err, s, c.Close)
}

// onUsers makes a client of Holdfast that ends the user's, too.
func onUsers(d driver.Driver, err error, s bench.Spec, end func() error) (bench.Client, error) {
	if err != nil {
		return nil, errors.Join(err, end())
	}
	c, err := bench.HoldfastOn(d, s)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return &onUsersClient{c, end}, nil
}

type onUsersClient struct {
	bench.Client
	end func() error
}

// Close implements bench.Client.
func (c *onUsersClient) Close() error { return errors.Join(c.Client.Close(), c.end()) }

// Counts implements bench.Counter.
func (c *onUsersClient) Counts() bench.Counts { return c.Client.(bench.Counter).Counts() }
