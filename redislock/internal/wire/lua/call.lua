local call = redis.call
