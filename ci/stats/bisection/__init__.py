"""Which of many commits changed a speed: Bayes over places of a step, from paired trials with heavy-tailed noise."""
