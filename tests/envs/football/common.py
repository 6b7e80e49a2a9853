"""What the football tests share."""

SIZES = {"3_vs_1_with_keeper": (3, 26), "counterattack_easy": (4, 30), "counterattack_hard": (4, 34)}
THREE = "football/3_vs_1_with_keeper"
