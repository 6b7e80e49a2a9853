"""Other people's environments: PyMARL, PettingZoo, Gymnasium for one agent and for teams (LBF, RWARE), JaxMARL."""
