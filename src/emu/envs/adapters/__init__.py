"""Other people's environments: any PyMARL `MultiAgentEnv`, PettingZoo's parallel API, Gymnasium, JaxMARL."""
